package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/chprojector/projector/internal/config"
	"github.com/chprojector/projector/internal/testenv"
)

// planted has a marker for every secret that a configuration can hold, so that it is known where it is seen.
var planted = map[string]string{
	"kafka.sasl.password": "MARK-kafka-password",
	"kafka.sasl.token":    "MARK-kafka-token",
	"clickhouse.password": "MARK-clickhouse-password",
	"http.token":          "MARK-http-token",
	"source.shards.dsn":   "MARK-mysql-password",
}

// secretsOf lists the keys below t whose values are secrets.
func secretsOf(t reflect.Type, path string) (keys []string) {
	switch t.Kind() {
	case reflect.Slice, reflect.Map:
		return secretsOf(t.Elem(), path)
	case reflect.Struct:
		for f := range t.Fields() {
			if f.IsExported() {
				keys = append(keys, secretsOf(f.Type, strings.TrimPrefix(path+"."+f.Tag.Get("koanf"), "."))...)
			}
		}
	}
	if t == reflect.TypeFor[config.Secret]() {
		return []string{path}
	}
	return keys
}

// TestPlantedSecrets gives every secret a marker, in the configuration and in its file, has the program meet servers that
// refuse it or are away, and looks for the markers in all that it writes and serves.
func TestPlantedSecrets(t *testing.T) {
	found := secretsOf(reflect.TypeFor[config.Config](), "")
	for _, key := range found {
		if planted[key] == "" {
			t.Errorf("%s is a secret that this test does not plant", key)
		}
	}
	if len(found) != len(planted) {
		t.Errorf("planted are %d secrets, the configuration has %v", len(planted), found)
	}
	t.Run("in the configuration", func(t *testing.T) { plantedIn(t, "plain", false) })
	t.Run("in files", func(t *testing.T) { plantedIn(t, "oauthbearer", true) })
}

// briefly is run for commands that may wait for a server: they are stopped soon.
func (w *world) briefly(args ...string) outcome {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Second)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code := run(ctx, slices.Concat(w.flags, args), nil, strings.NewReader(""), &stdout, &stderr)
	return outcome{code, stdout.String(), stderr.String()}
}

func plantedIn(t *testing.T, mechanism string, inFiles bool) {
	t.Helper()
	w := newWorld(t)
	cluster := testenv.NewFakeKafka(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "anna", "right"))
	// A server of its own: this one does not survive a failed authentication.
	server := testenv.NewClickHouse(t, testenv.ClickHouseConfig{Users: "<anna><password>right</password></anna>"})
	// And one that lets the marker in, so that commands get as far as the source.
	open := testenv.NewClickHouse(t, testenv.ClickHouseConfig{Databases: []string{"reporting"}, Users: "<anna><password>" + planted["clickhouse.password"] + "</password></anna>"})
	secret := func(key string) string { // as an argument
		name := key[strings.LastIndexByte(key, '.')+1:]
		if !inFiles {
			return name + ": " + planted[key]
		}
		path := filepath.Join(t.TempDir(), name)
		replaced(t, path, "", planted[key]+"\n")
		return name + "_file: " + path
	}
	sasl := secret("kafka.sasl.token")
	if mechanism != "oauthbearer" {
		sasl = "username: anna, " + secret("kafka.sasl.password")
	}
	text, err := os.ReadFile("../../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write := func(dsn string) {
		t.Helper()
		shard := fmt.Sprintf("dsn: %q", dsn)
		if inFiles {
			path := filepath.Join(t.TempDir(), "dsn")
			replaced(t, path, "", dsn)
			shard = "dsn_file: " + path
		}
		w.flags[1] = filepath.Join(t.TempDir(), "config.yaml")
		replaced(t, w.flags[1], "", string(text))
		for old, with := range map[string]string{
			`sasl: {mechanism: ""}`:        "sasl: {mechanism: " + mechanism + ", " + sasl + "}",
			"username: default":            "username: anna",
			`password: "" `:                secret("clickhouse.password") + " ",
			`http: {address: ":8080"}`:     `http: {address: ":8080", ` + secret("http.token") + "}",
			"dsn_file: /run/secrets/s0":    shard,
			"brokers: [localhost:9092]":    "brokers: [" + cluster.ListenAddrs()[0] + "]",
			"addresses: [localhost:9000] ": "addresses: [" + server.Addr() + "] ",
		} {
			replaced(t, w.flags[1], old, with)
		}
	}
	clean := func(what, text string) {
		t.Helper()
		for key, marker := range planted {
			if strings.Contains(text, marker) {
				t.Errorf("%s tells %s:\n%s", what, key, text)
			}
		}
	}
	mysql := testenv.SharedMariaDB(t)
	_, at, _ := strings.Cut(mysql.DSN(), "@")
	w.flags = []string{"--config", "", "--log-format", "json", "--log-level", "debug", "--set", "http.address=127.0.0.1:0"}
	away, there := []string{"--set", "clickhouse.addresses=127.0.0.1:1"}, []string{"--set", "clickhouse.addresses=" + open.Addr()}
	for _, dsn := range []string{"nobody:" + planted["source.shards.dsn"] + "@" + at, "nobody:" + planted["source.shards.dsn"] + "@tcp(127.0.0.1:1)/x", "mysql://nobody:" + planted["source.shards.dsn"] + "@127.0.0.1/x"} {
		write(dsn)
		w.must(exitDone, append(slices.Clone(there), "schema", "apply", "--yes")...)
		for _, args := range [][]string{
			{"config", "print"},
			{"config", "print", "-o", "json"},
			{"config", "check"},
			{"schema", "print"},
			{"schema", "print", "--grants"},
			{"outbox", "ddl"},
			{"backfill", "--campaign", "1", "--dry-run"},
			{"reconcile", "--campaign", "1"},
			{"repair", "plan", "--campaign", "1", "--reason", "r"},
			{"outbox", "list"},
			{"outbox", "replay", "--error", "x", "--reason", "r", "--dry-run"},
			{"--set", "http.token=x", "--set", "http.token_file=y", "config", "check"},
		} {
			got := w.briefly(append(slices.Clone(there), args...)...)
			clean(strings.Join(args, " "), got.stdout+got.stderr)
			if args[0] == "config" && args[1] == "print" && !inFiles && strings.Count(got.stdout, config.Redacted) != 4 {
				t.Errorf("config print shows not 4 secrets as %s:\n%s", config.Redacted, got.stdout)
			}
		}
	}
	r := w.start(away...)
	for _, path := range []string{"/", "/metrics", "/api/status", "/api/history", "/readyz", "/livez", "/assets/page.js"} {
		for _, token := range []string{planted["http.token"], "wrong"} {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.probes+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			request.SetBasicAuth("anna", token)
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			clean(path, string(body)+fmt.Sprint(response.Header))
			if probe := slices.Contains([]string{"/readyz", "/livez"}, path); !probe && (response.StatusCode == http.StatusUnauthorized) != (token == "wrong") {
				t.Errorf("%s with the token %s is %d", path, token, response.StatusCode)
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
	r.stop()
	r.end()
	clean("the log of run", r.log.String())
	for _, args := range [][]string{{"status"}, {"status", "-o", "json"}, {"schema", "check"}, {"run"}} { // refused by a server that is there
		got := w.briefly(args...)
		clean(strings.Join(args, " "), got.stdout+got.stderr)
		if got.code == exitDone && args[0] != "run" { // which waits for a server that did not survive the others
			t.Errorf("%v was let in with a wrong password", args)
		}
	}
}
