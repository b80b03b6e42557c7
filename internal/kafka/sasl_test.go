package kafka

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/chprojector/projector/internal/credentials"
)

// TestOAuthBearer looks at the client's first message for a token that changes
// and goes away. TestSecuredKafka shows tokens to a broker.
func TestOAuthBearer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	mechanism, err := SASL{Mechanism: "oauthbearer", Token: credentials.Secret{File: file}}.mechanism()
	if err != nil {
		t.Fatal(err)
	}
	if mechanism.Name() != "OAUTHBEARER" {
		t.Errorf("mechanism is %s", mechanism.Name())
	}
	for _, token := range []string{"first", "second"} {
		write(token)
		_, message, err := mechanism.Authenticate(t.Context(), "localhost")
		if err != nil || !bytes.Contains(message, []byte("auth=Bearer "+token+"\x01")) {
			t.Errorf("first message %q, %v, want the token %s", message, err, token)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, _, err := mechanism.Authenticate(t.Context(), "localhost"); err == nil {
		t.Error("a removed token file was not noticed")
	}
}
