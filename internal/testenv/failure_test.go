package testenv

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every failure to start names what went wrong and leaves neither a process nor a folder.
func TestStartFailures(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	tests := []struct {
		name  string
		start func(context.Context) (interface{ Stop() error }, error)
		want  []string
	}{
		{
			"ClickHouse refuses its configuration", func(ctx context.Context) (interface{ Stop() error }, error) {
				return StartClickHouse(ctx, ClickHouseConfig{Server: "<unclosed>"})
			}, []string{"start ClickHouse", "exit status 1", "SAXParseException"},
		},
		{
			"ClickHouse refuses a database", func(ctx context.Context) (interface{ Stop() error }, error) {
				return StartClickHouse(ctx, ClickHouseConfig{Databases: []string{"system`"}})
			}, []string{"create the database system`", "SYNTAX_ERROR"},
		},
		{
			"Kafka refuses a property", func(ctx context.Context) (interface{ Stop() error }, error) {
				return StartKafka(ctx, KafkaConfig{Properties: map[string]string{"log.retention.hours": "many"}})
			}, []string{"start Kafka", "exit status 1", "log.retention.hours"},
		},
		{
			"MariaDB refuses an argument", func(ctx context.Context) (interface{ Stop() error }, error) {
				return StartMariaDB(ctx, MariaDBConfig{Args: []string{"--no-such-option=1"}})
			}, []string{"start MariaDB", "unknown variable", "no-such-option"},
		},
		{
			"ClickHouse's port is taken", func(ctx context.Context) (interface{ Stop() error }, error) {
				return StartClickHouse(ctx, ClickHouseConfig{TCPPort: port})
			}, []string{"start ClickHouse", "port", "cannot be used", "address already in use"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			temporary := t.TempDir()
			t.Setenv("TMPDIR", temporary)
			_, err := tt.start(t.Context())
			if err == nil {
				t.Fatal("it starts")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error lacks %q: %v", want, err)
				}
			}
			if left, _ := filepath.Glob(filepath.Join(temporary, "projector-*")); len(left) > 0 {
				t.Errorf("folders remain: %q", left)
			}
		})
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	t.Setenv("TMPDIR", t.TempDir())
	if _, err := StartClickHouse(ctx, ClickHouseConfig{}); err == nil {
		t.Error("it starts although its context has ended")
	}
	if left, _ := os.ReadDir(os.TempDir()); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestUseAfterStop(t *testing.T) {
	server := NewClickHouse(t, ClickHouseConfig{})
	dir := server.Dir()
	for range 2 {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the temporary data remain: %v", err)
	}
	if err := server.Restart(t.Context()); err == nil || !strings.Contains(err.Error(), "it was stopped") {
		t.Errorf("Restart after Stop says %v", err)
	}
	if err := server.Kill(); err == nil {
		t.Error("Kill after Stop succeeds")
	}
	if err := server.Running(); err == nil {
		t.Error("it runs after Stop")
	}
}
