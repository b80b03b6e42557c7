package e2e

import (
	"os"
	"strconv"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/chprojector/projector/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shared is one broker for all tests that do not kill it. It ends with the test binary.
var shared struct {
	sync.Mutex
	broker *testenv.Kafka
}

func sharedKafka(t testing.TB) *testenv.Kafka {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.broker == nil {
		broker, err := testenv.StartKafka(t.Context(), testenv.KafkaConfig{})
		if err != nil {
			t.Fatal(err)
		}
		shared.broker = broker
	}
	return shared.broker
}

// number reads a whole number from the environment.
func number(t testing.TB, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s: want a positive number", variable, text)
	}
	return n
}
