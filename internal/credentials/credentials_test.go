package credentials_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chprojector/projector/internal/credentials"
)

func TestSecretRead(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name   string
		secret credentials.Secret
		want   string
		err    string
	}{
		{"none", credentials.Secret{}, "", ""},
		{"value", credentials.Secret{Value: "a b\n"}, "a b\n", ""},
		{"file", credentials.Secret{File: file("plain", "s3cret")}, "s3cret", ""},
		{"file with line break", credentials.Secret{File: file("unix", "s3cret\n")}, "s3cret", ""},
		{"file with Windows line break", credentials.Secret{File: file("windows", "s3cret\r\n")}, "s3cret", ""},
		{"spaces belong to the secret", credentials.Secret{File: file("spaces", " s3cret \n\n")}, " s3cret \n", ""},
		{"empty file", credentials.Secret{File: file("empty", "\n")}, "", "empty is empty"},
		{"missing file", credentials.Secret{File: filepath.Join(dir, "missing")}, "", "missing: no such file"},
		{"both", credentials.Secret{Value: "x", File: file("both", "y")}, "", "both directly and in"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.secret.Read()
			if got != c.want {
				t.Errorf("Read() = %q, want %q", got, c.want)
			}
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("Read() error = %v, want one with %q", err, c.err)
			}
		})
	}
}

func TestSecretFollowsItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	s := credentials.Secret{File: path}
	for _, want := range []string{"first", "second"} {
		if err := os.WriteFile(path, []byte(want+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Read(); err != nil || got != want {
			t.Errorf("Read() = %q, %v, want %q", got, err, want)
		}
	}
}

func TestSecretIsNeverPrinted(t *testing.T) {
	s := credentials.Secret{Value: "s3cret"}
	for _, format := range []string{"%v", "%s", "%+v", "%#v", "%q"} {
		for _, v := range []any{s, &s, struct{ Password credentials.Secret }{s}} {
			if out := fmt.Sprintf(format, v); strings.Contains(out, "s3cret") {
				t.Errorf("%s of %T prints the secret: %s", format, v, out)
			}
		}
	}
}

func TestTLSConfig(t *testing.T) {
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage.pem")
	if err := os.WriteFile(garbage, []byte("not a certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		tls  credentials.TLS
		err  string
	}{
		{"files without enabled", credentials.TLS{CAFile: garbage}, "enabled is false"},
		{"missing authority", credentials.TLS{Enabled: true, CAFile: filepath.Join(dir, "none")}, "ca_file"},
		{"authority without certificate", credentials.TLS{Enabled: true, CAFile: garbage}, "holds no PEM certificate"},
		{"certificate without key", credentials.TLS{Enabled: true, CertFile: garbage}, "need each other"},
		{"unreadable certificate", credentials.TLS{Enabled: true, CertFile: garbage, KeyFile: garbage}, "cert_file and key_file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := c.tls.Config(); err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("Config() error = %v, want one with %q", err, c.err)
			}
		})
	}
	if config, err := (credentials.TLS{}).Config(); config != nil || err != nil {
		t.Errorf("zero TLS gives %v, %v, want nothing", config, err)
	}
	config, err := credentials.TLS{Enabled: true, ServerName: "kafka.internal"}.Config()
	if err != nil || config.ServerName != "kafka.internal" || config.InsecureSkipVerify {
		t.Errorf("Config() = %+v, %v", config, err)
	}
}
