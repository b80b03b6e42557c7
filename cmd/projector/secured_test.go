package main

import (
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/chprojector/projector/internal/credentials/testca"
	"github.com/chprojector/projector/internal/testenv"
)

// TestSecuredRun follows "Secure it" of docs/operations.md for Kafka and the
// admin port, in a process that has nothing but its configuration.
func TestSecuredRun(t *testing.T) {
	const password, token = "MARK-password", "MARK-token"
	w := newWorld(t)
	ca := testca.New(t)
	broker, _, _ := ca.Issue("kafka.internal")
	_, cert, key := ca.Issue("projector.internal")
	prometheus, _, _ := ca.Issue("prometheus")
	secret := func(text string) string {
		file := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	cluster := testenv.NewFakeKafka(t, kfake.SeedTopics(1, "fitness-results"), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "anna", password),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{broker}, ClientCAs: ca.Pool(), ClientAuth: tls.RequireAndVerifyClientCert}))
	w.must(exitDone, "schema", "apply", "--yes")
	args := []string{"run"}
	for _, value := range []string{
		"kafka.brokers=" + cluster.ListenAddrs()[0],
		"kafka.tls.enabled=true", "kafka.tls.ca_file=" + ca.File, "kafka.tls.cert_file=" + cert, "kafka.tls.key_file=" + key, "kafka.tls.server_name=kafka.internal",
		"kafka.sasl.mechanism=scram-sha-512", "kafka.sasl.username=anna", "kafka.sasl.password_file=" + secret(password),
		"http.token_file=" + secret(token),
		"http.tls.enabled=true", "http.tls.cert_file=" + cert, "http.tls.key_file=" + key, "http.tls.client_ca_file=" + ca.File,
	} {
		args = append(args, "--set", value)
	}
	command, log := w.process(args...)
	w.until("it consumes", func() bool { return strings.Contains(log.String(), `"message":"consuming"`) })

	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DefaultProduceTopic("fitness-results"),
		kgo.DialTLSConfig(&tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{broker}}),
		kgo.SASL(scram.Auth{User: "anna", Pass: password}.AsSha512Mechanism()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, event := range story() {
		if err := client.ProduceSync(t.Context(), kgo.SliceRecord(event)).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}

	address := strings.Replace(probesOf(log), "http://", "https://", 1)
	ask := func(path, token string, pairs ...tls.Certificate) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		visitor := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), Certificates: pairs}}
		response, err := visitor.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	w.until("the metrics tell of the events", func() bool {
		_, metrics := ask("/metrics", token, prometheus)
		return strings.Contains(metrics, `projector_records_total{projection="fitness_results",topic="fitness-results"} 8`)
	})
	w.until("it is ready, to whoever asks", func() bool {
		code, _ := ask("/readyz", "")
		return code == http.StatusOK
	})
	for _, c := range []struct {
		path, token string
		pairs       []tls.Certificate
		code        int
	}{
		{"/livez", "", nil, http.StatusOK},
		{"/", token, []tls.Certificate{prometheus}, http.StatusOK},
		{"/metrics", token, nil, http.StatusForbidden},
		{"/metrics", "", []tls.Certificate{prometheus}, http.StatusUnauthorized},
		{"/api/status", "another", []tls.Certificate{prometheus}, http.StatusUnauthorized},
	} {
		if code, body := ask(c.path, c.token, c.pairs...); code != c.code {
			t.Errorf("%s with the token %q and %d certificates is %d, want %d: %s", c.path, c.token, len(c.pairs), code, c.code, body)
		}
	}
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil || strings.Contains(log.String(), "MARK") {
		t.Errorf("%v\n%s", err, log)
	}
	if rows := w.rows("SELECT data_id, version, result FROM fitness_results_current ORDER BY data_id"); rows != "1\t2\t2.31\n" {
		t.Errorf("the rows are %q\n%s", rows, log)
	}
}
