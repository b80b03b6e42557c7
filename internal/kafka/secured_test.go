package kafka_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/credentials"
	"github.com/chprojector/projector/internal/credentials/testca"
	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/internal/testenv"
)

// securedKafka starts a real broker of which the listener SASL_SSL takes every
// mechanism and the listener SSL demands a certificate of the authority. The
// user anna has the given password for PLAIN, and it with the mechanism's name
// for SCRAM, so that no password fits two of them.
func securedKafka(t *testing.T, ca *testca.Authority, password string) *testenv.Kafka {
	t.Helper()
	_, certFile, keyFile := ca.Issue("kafka.internal")
	var store []byte
	for _, file := range []string{keyFile, certFile} {
		pem, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		store = append(store, pem...)
	}
	storeFile := filepath.Join(t.TempDir(), "store.pem")
	if err := os.WriteFile(storeFile, store, 0o600); err != nil {
		t.Fatal(err)
	}
	const sasl, module = "listener.name.sasl_ssl.", "org.apache.kafka.common.security."
	broker := testenv.NewKafka(t, testenv.KafkaConfig{Secured: []string{"SASL_SSL", "SSL"}, Properties: map[string]string{
		"ssl.keystore.type": "PEM", "ssl.keystore.location": storeFile,
		"ssl.truststore.type": "PEM", "ssl.truststore.location": ca.File,
		"listener.name.ssl.ssl.client.auth": "required",

		sasl + "sasl.enabled.mechanisms":        "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
		sasl + "plain.sasl.jaas.config":         fmt.Sprintf("%splain.PlainLoginModule required user_anna=%q;", module, password),
		sasl + "scram-sha-256.sasl.jaas.config": module + "scram.ScramLoginModule required;",
		sasl + "scram-sha-512.sasl.jaas.config": module + "scram.ScramLoginModule required;",
		sasl + "oauthbearer.sasl.jaas.config":   module + "oauthbearer.OAuthBearerLoginModule required;", // its default believes unsigned tokens
	}})
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Brokers()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for name, mechanism := range map[string]kadm.ScramMechanism{"scram-sha-256": kadm.ScramSha256, "scram-sha-512": kadm.ScramSha512} {
		altered, err := kadm.NewClient(client).AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{
			{User: "anna", Mechanism: mechanism, Iterations: 4096, Password: password + "-" + name},
		})
		if err := errors.Join(err, altered.Error()); err != nil {
			t.Fatal(err)
		}
	}
	return broker
}

// unsigned is a JWT without a signature.
func unsigned(subject string, expires time.Time) string {
	claims := fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d}`, subject, expires.Add(-time.Hour).Unix(), expires.Unix())
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode([]byte(claims)) + "."
}

// TestSecuredKafka: a real broker takes each way of proving who one is that a
// configuration can name, and of a wrong proof the error tells where and why.
func TestSecuredKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a Java process")
	}
	const password = "s3cret"
	ca, other := testca.New(t), testca.New(t)
	broker := securedKafka(t, ca, password)
	plain, err := kafka.NewAdmin(kgo.SeedBrokers(broker.Brokers()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plain.Close) // after the cases, which are parallel

	trusting := credentials.TLS{Enabled: true, CAFile: ca.File}
	certified := func(by *testca.Authority, name string) credentials.TLS {
		_, cert, key := by.Issue(name)
		return credentials.TLS{Enabled: true, CAFile: ca.File, CertFile: cert, KeyFile: key}
	}
	user := func(mechanism, name, password string) kafka.SASL {
		return kafka.SASL{Mechanism: mechanism, Username: name, Password: credentials.Secret{Value: password}}
	}
	token := func(token string) kafka.SASL {
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return kafka.SASL{Mechanism: "oauthbearer", Token: credentials.Secret{File: file}}
	}
	expired := unsigned("anna", time.Now().Add(-time.Hour))
	const saslTLS, mutualTLS = "SASL_SSL", "SSL"
	for _, c := range []struct {
		name, listener string // "" is the plain one
		tls            credentials.TLS
		sasl           kafka.SASL
		cause          string // of the error; "" = none
		remedy         string // in the error
		secret         string // is not in it
	}{
		{"plain", saslTLS, trusting, user("plain", "anna", password), "", "", ""},
		{"scram-sha-256", saslTLS, trusting, user("scram-sha-256", "anna", password+"-scram-sha-256"), "", "", ""},
		{"scram-sha-512", saslTLS, trusting, user("scram-sha-512", "anna", password+"-scram-sha-512"), "", "", ""},
		{"oauthbearer", saslTLS, trusting, token(unsigned("anna", time.Now().Add(time.Hour))), "", "", ""},
		{"mutual", mutualTLS, certified(ca, "anna"), kafka.SASL{}, "", "", ""},
		{"named", mutualTLS, named(certified(ca, "anna"), "kafka.internal"), kafka.SASL{}, "", "", ""},

		{"wrong plain", saslTLS, trusting, user("plain", "anna", "wr0ng"), "Invalid username or password", "correct kafka.sasl", "wr0ng"},
		{"wrong scram-sha-256", saslTLS, trusting, user("scram-sha-256", "anna", password+"-scram-sha-512"), "invalid credentials", "correct kafka.sasl", password},
		{"wrong scram-sha-512", saslTLS, trusting, user("scram-sha-512", "anna", password+"-scram-sha-256"), "invalid credentials", "correct kafka.sasl", password},
		{"unknown user", saslTLS, trusting, user("scram-sha-512", "bert", password), "invalid credentials", "correct kafka.sasl", password},
		{"expired token", saslTLS, trusting, token(expired), "invalid_token", "correct kafka.sasl", expired},
		{"no mechanism", saslTLS, trusting, kafka.SASL{}, "SASL", "do kafka.tls and kafka.sasl fit it?", ""},
		{"no TLS", saslTLS, credentials.TLS{}, user("plain", "anna", password), "TLS", "do kafka.tls and kafka.sasl fit it?", password},
		{"TLS to a plain listener", "", trusting, kafka.SASL{}, "TLS", "do kafka.tls and kafka.sasl fit it?", ""},
		{"no certificate", mutualTLS, trusting, kafka.SASL{}, "certificate", "kafka.tls.cert_file and key_file", ""},
		{"certificate of another authority", mutualTLS, certified(other, "anna"), kafka.SASL{}, "certificate", "kafka.tls.cert_file and key_file", ""},
		{"untrusted broker", saslTLS, credentials.TLS{Enabled: true, CAFile: other.File}, user("plain", "anna", password), "unknown authority", "is kafka.tls.ca_file the authority of the certificate", password},
		{"broker of another name", mutualTLS, named(certified(ca, "anna"), "kafka.external"), kafka.SASL{}, "kafka.external", "kafka.tls.server_name", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			config := kafka.Config{Brokers: broker.Brokers(), TLS: c.tls, SASL: c.sasl}
			if c.listener != "" {
				config.Brokers = broker.SecuredBrokers(c.listener)
			}
			if c.cause == "" {
				topic := strings.ReplaceAll(c.name, " ", "-")
				if err := plain.CreateTopic(t.Context(), topic, 1, -1, nil); err != nil {
					t.Fatal(err)
				}
				if err := roundTrip(t, config, topic); err != nil {
					t.Fatal(err)
				}
				return
			}
			err := ping(t, config)
			if err == nil {
				t.Fatal("the broker was asked and answered")
			}
			for _, part := range []string{config.Brokers[0], c.cause, c.remedy} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("ping: %v, which does not name %s", err, part)
				}
			}
			// `projector run` ends on a refused password or token, and waits on anything else.
			refused := c.sasl.Mechanism != "" && c.tls == trusting
			if errors.Is(err, kerr.SaslAuthenticationFailed) != refused {
				t.Errorf("ping: %v, refused by the mechanism: want %t", err, refused)
			}
			if c.secret != "" && strings.Contains(err.Error(), c.secret) {
				t.Errorf("ping: %v, which shows a secret", err)
			}
		})
	}
}

func named(t credentials.TLS, server string) credentials.TLS {
	t.ServerName = server
	return t
}

// roundTrip describes a topic, produces a record and consumes it.
func roundTrip(t *testing.T, c kafka.Config, topic string) error {
	t.Helper()
	opts, err := c.Options(zerolog.Nop())
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(append(opts, kgo.DefaultProduceTopic(topic), kgo.ConsumeTopics(topic), kgo.ConsumerGroup(topic))...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for { // until the broker shows what its controller has made
		_, err := kafka.AdminOf(client).Topics(ctx, topic)
		if err == nil {
			break
		}
		if !errors.Is(err, kerr.UnknownTopicOrPartition) || ctx.Err() != nil {
			return err
		}
	}
	if err := client.ProduceSync(ctx, kgo.StringRecord("x")).FirstErr(); err != nil {
		return err
	}
	fetches := client.PollFetches(ctx)
	if n := fetches.NumRecords(); n != 1 {
		return fmt.Errorf("%d records, %w", n, fetches.Err())
	}
	return nil
}
