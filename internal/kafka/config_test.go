package kafka_test

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/credentials"
	"github.com/chprojector/projector/internal/credentials/testca"
	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/internal/testenv"
)

// ping connects with a client of its own and asks for an answer.
func ping(t *testing.T, c kafka.Config) error {
	t.Helper()
	opts, err := c.Options(zerolog.Nop())
	if err != nil {
		return err
	}
	admin, err := kafka.NewAdmin(opts...)
	if err != nil {
		return err
	}
	defer admin.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return admin.Ping(ctx)
}

func TestSASL(t *testing.T) {
	cluster := testenv.NewFakeKafka(t, kfake.EnableSASL(),
		kfake.Superuser("PLAIN", "anna", "plain secret"),
		kfake.Superuser("SCRAM-SHA-256", "anna", "short secret"),
		kfake.Superuser("SCRAM-SHA-512", "anna", "long secret"))
	for _, c := range []struct {
		name, mechanism, password string
		ok                        bool
	}{
		{"plain", "plain", "plain secret", true},
		{"scram-sha-256", "scram-sha-256", "short secret", true},
		{"scram-sha-512", "scram-sha-512", "long secret", true},
		{"wrong password", "scram-sha-512", "short secret", false},
		{"wrong mechanism", "plain", "long secret", false},
		{"none", "", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := kafka.Config{Brokers: cluster.ListenAddrs()}
			if c.mechanism != "" {
				config.SASL = kafka.SASL{Mechanism: c.mechanism, Username: "anna", Password: credentials.Secret{Value: c.password}}
			}
			if err := ping(t, config); (err == nil) != c.ok {
				t.Errorf("ping: %v, want success %v", err, c.ok)
			}
		})
	}
}

// TestRotatedPassword: a client made before the rotation reads the password
// again for a connection made after it.
func TestRotatedPassword(t *testing.T) {
	cluster := testenv.NewFakeKafka(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "anna", "new"))
	file := filepath.Join(t.TempDir(), "password")
	write := func(s string) {
		if err := os.WriteFile(file, []byte(s+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	opts, err := kafka.Config{Brokers: cluster.ListenAddrs(), SASL: kafka.SASL{
		Mechanism: "scram-sha-256", Username: "anna", Password: credentials.Secret{File: file},
	}}.Options(zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	admin, err := kafka.NewAdmin(opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := admin.Ping(ctx); err == nil {
		t.Fatal("the old password was accepted")
	}
	write("new")
	if err := admin.Ping(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestTLS(t *testing.T) {
	ca := testca.New(t)
	server, _, _ := ca.Issue("kafka.internal")
	_, clientCert, clientKey := ca.Issue("client")
	cluster := testenv.NewFakeKafka(t, kfake.TLS(&tls.Config{
		Certificates: []tls.Certificate{server}, ClientCAs: ca.Pool(), ClientAuth: tls.RequireAndVerifyClientCert,
	}))
	for _, c := range []struct {
		name string
		tls  credentials.TLS
		ok   bool
	}{
		{"mutual", credentials.TLS{Enabled: true, CAFile: ca.File, CertFile: clientCert, KeyFile: clientKey}, true},
		{"named", credentials.TLS{Enabled: true, CAFile: ca.File, CertFile: clientCert, KeyFile: clientKey, ServerName: "kafka.internal"}, true},
		{"other name", credentials.TLS{Enabled: true, CAFile: ca.File, CertFile: clientCert, KeyFile: clientKey, ServerName: "kafka.external"}, false},
		{"no client certificate", credentials.TLS{Enabled: true, CAFile: ca.File}, false},
		{"other authority", credentials.TLS{Enabled: true, CAFile: testca.New(t).File, CertFile: clientCert, KeyFile: clientKey}, false},
		{"system roots", credentials.TLS{Enabled: true, CertFile: clientCert, KeyFile: clientKey}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := ping(t, kafka.Config{Brokers: cluster.ListenAddrs(), TLS: c.tls}); (err == nil) != c.ok {
				t.Errorf("ping: %v, want success %v", err, c.ok)
			}
		})
	}
}

func TestRefusedConfigs(t *testing.T) {
	brokers := []string{"localhost:9092"}
	missing := credentials.Secret{File: filepath.Join(t.TempDir(), "missing")}
	for _, c := range []struct {
		name   string
		config kafka.Config
		err    string
	}{
		{"no brokers", kafka.Config{}, "no brokers"},
		{"unknown mechanism", kafka.Config{Brokers: brokers, SASL: kafka.SASL{Mechanism: "gssapi"}}, `unknown mechanism "gssapi"`},
		{"no mechanism", kafka.Config{Brokers: brokers, SASL: kafka.SASL{Username: "anna"}}, "without a mechanism"},
		{"no username", kafka.Config{Brokers: brokers, SASL: kafka.SASL{Mechanism: "plain"}}, "needs a username"},
		{"missing password file", kafka.Config{Brokers: brokers, SASL: kafka.SASL{Mechanism: "plain", Username: "anna", Password: missing}}, "password: read secret"},
		{"missing token file", kafka.Config{Brokers: brokers, SASL: kafka.SASL{Mechanism: "oauthbearer", Token: missing}}, "token: read secret"},
		{"missing authority", kafka.Config{Brokers: brokers, TLS: credentials.TLS{Enabled: true, CAFile: missing.File}}, "kafka: tls: read ca_file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := c.config.Options(zerolog.Nop()); err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("Options() error = %v, want one with %q", err, c.err)
			}
		})
	}
}

// TestDialSaysWhereTheAddressIsFrom: one of the configuration is corrected there, one that the cluster has named is not.
func TestDialSaysWhereTheAddressIsFrom(t *testing.T) {
	opts, err := kafka.Config{Brokers: []string{"127.0.0.1:1"}}.Options(zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	dial := client.OptValue(kgo.Dialer).(func(context.Context, string, string) (net.Conn, error))
	for address, want := range map[string]string{
		"127.0.0.1:1": "; is the server up, and is kafka.brokers right?",
		"127.0.0.1:2": "; is this broker up? The cluster named its address: where this machine cannot reach it, correct the broker's advertised.listeners",
	} {
		if _, err := dial(t.Context(), "tcp", address); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
}
