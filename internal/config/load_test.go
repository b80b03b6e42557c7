package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var update = flag.Bool("update", false, "write the golden files")

// TestWrong loads one fixture for each way to be wrong and compares what the
// operator reads.
func TestWrong(t *testing.T) {
	files, err := filepath.Glob("testdata/wrong/*.yaml")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d fixtures, %v; want at least 30", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = parse(Input{Path: "config.yaml"}, text)
			if _, ok := errors.AsType[Problems](err); !ok {
				t.Fatalf("error %T %v; want Problems", err, err)
			}
			if strings.Contains(err.Error(), "geheim") || strings.Contains(err.Error(), "12345678") {
				t.Errorf("a secret is shown: %v", err)
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".golden", err.Error()+"\n")
		})
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func load(t *testing.T, in Input) *Config {
	t.Helper()
	cfg, err := Load(in)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestRepositoryFile holds that the file a newcomer starts with is right, and
// that what it shows as defaults are the defaults.
func TestRepositoryFile(t *testing.T) {
	const file = "../../config.yaml"
	cfg := load(t, Input{Path: file})
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// The commented keys carry their defaults: uncommented they change nothing.
	shown := regexp.MustCompile(`(?m)^( *)# ([a-z_]+: .*)$`).ReplaceAll(text, []byte("$1$2"))
	if bytes.Count(shown, []byte("\n")) != bytes.Count(text, []byte("\n")) || bytes.Equal(shown, text) {
		t.Fatal("no commented keys found")
	}
	all, err := parse(Input{Path: file}, shown)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(cfg, all, exact); diff != "" {
		t.Errorf("a commented key does not show its default (-without +with):\n%s", diff)
	}
}

// exact compares configurations without the places of their keys.
var exact = cmp.Options{
	cmp.Comparer(func(a, b Secret) bool { return a.Reveal() == b.Reveal() }),
	cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".places" }, cmp.Ignore()),
	cmpopts.EquateEmpty(),
}

// TestPrintedReadsTheSame prints a configuration and reads it again.
// What is tried with the repository's file holds for what is deployed.
func TestManifestsReadTheSame(t *testing.T) {
	example, deployed := load(t, Input{Path: "../../config.yaml"}), load(t, Input{Path: "../../deploy/kubernetes/config/config.yaml"})
	if d := cmp.Diff(example.Projections, deployed.Projections); d != "" {
		t.Errorf("projections: %s", d)
	}
	if d := cmp.Diff(example.Source.Projections, deployed.Source.Projections); d != "" {
		t.Errorf("source.projections: %s", d)
	}
}

func TestPrintedReadsTheSame(t *testing.T) {
	for _, c := range []struct {
		name, file string
		print      func(*Config) ([]byte, error)
	}{
		{"full.yaml", "testdata/full.yaml", (*Config).YAML},
		{"config.yaml", "../../config.yaml", (*Config).YAML},
		{"full.yaml as JSON", "testdata/full.yaml", (*Config).JSON},
		{"config.yaml as JSON", "../../config.yaml", (*Config).JSON},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := load(t, Input{Path: c.file})
			text, err := c.print(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(c.name, "JSON") && !json.Valid(text) {
				t.Errorf("not JSON:\n%s", text)
			}
			if bytes.Contains(text, []byte("geheim")) {
				t.Errorf("a secret is printed:\n%s", text)
			}
			again, err := parse(Input{Path: "printed"}, text)
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			for _, s := range []*Secret{&cfg.ClickHouse.Password, &cfg.Kafka.SASL.Password, &cfg.HTTP.Token} {
				if *s != "" {
					*s = Redacted
				}
			}
			for i := range cfg.Source.Shards {
				if cfg.Source.Shards[i].DSN != "" {
					cfg.Source.Shards[i].DSN = Redacted
				}
			}
			if diff := cmp.Diff(cfg, again, exact); diff != "" {
				t.Errorf("-loaded +printed and loaded:\n%s\n%s", diff, text)
			}
		})
	}
}

func TestFullFile(t *testing.T) {
	cfg := load(t, Input{Path: "testdata/full.yaml"})
	for what, ok := range map[string]bool{
		"a decimal default keeps its digits": string(cfg.Projections[0].Columns[3].Default) == "0.100000000000000001",
		"null is a default":                  string(cfg.Projections[0].Columns[4].Default) == "null",
		"a quoted word is a text":            string(cfg.Projections[0].Columns[5].Default) == `"true"`,
		"a list is a default":                string(cfg.Projections[0].Columns[6].Default) == `["a","1"]`,
		"a map is a default":                 string(cfg.Projections[0].Columns[7].Default) == `{"a":1,"b":2}`,
		"no default is none":                 cfg.Projections[0].Columns[0].Default == nil,
		"a setting is passed on as written":  cfg.ClickHouse.Settings["max_threads"] == "0x10",
		"a code needs no quotes":             cfg.ClickHouse.ErrorClasses["407"] == "rejected",
		"the first generation":               cfg.Projections[1].Generation == 1,
		"tombstones are letters":             cfg.Projections[1].NullValue == "dead_letter",
		"a fraction of a MiB":                cfg.Batch.Bytes == 3<<19,
	} {
		if !ok {
			t.Error(what)
		}
	}
}

func TestOverrides(t *testing.T) {
	in := Input{
		Path: "../../config.yaml",
		Environ: []string{
			"PATH=/bin", "PROJECTOR_CONFIG=x", "PROJECTOR_LOG_LEVEL=debug", "PROJECTOR_LOG_FORMAT=json",
			"PROJECTOR_SERVICE_HOST=10.0.0.1", "PROJECTOR_PORT=tcp://10.0.0.1:8080", "PROJECTOR_PORT_8080_TCP_ADDR=10.0.0.1",
			"PROJECTOR_SERVICE_PORT_HTTP=8080", "PROJECTOR_METRICS_SERVICE_HOST=10.0.0.2",
			"PROJECTOR_CLICKHOUSE__PASSWORD=geheim", "PROJECTOR_KAFKA__BROKERS=a:1, b:2", "PROJECTOR_LANES=2",
			"PROJECTOR_BATCH__DELAY=500ms", "PROJECTOR_KAFKA__TLS__ENABLED=true", "PROJECTOR_DEAD_LETTER__STOP_RATIO=0.25",
			"PROJECTOR_CLICKHOUSE__SETTINGS__MAX_THREADS=4", "PROJECTOR_CLICKHOUSE__USERNAME=2024",
		},
		Set: []string{"lanes=3", "batch.bytes=1MiB", "clickhouse.settings.log_comment=a=b"},
	}
	cfg := load(t, in)
	want := load(t, Input{Path: in.Path})
	want.ClickHouse.Password = "geheim"
	want.ClickHouse.Username = "2024"
	want.ClickHouse.Settings = map[string]string{"max_threads": "4", "log_comment": "a=b"}
	want.Kafka.Brokers = []string{"a:1", "b:2"}
	want.Kafka.TLS.Enabled = true
	want.Lanes = 3
	want.Batch = Batch{Rows: 100000, Bytes: 1 << 20, Delay: Duration(500 * time.Millisecond)}
	want.DeadLetter.StopRatio = 0.25
	if diff := cmp.Diff(want, cfg, exact); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestWrongOverrides holds that an override is as strict as the file and that
// its errors name the variable or the flag.
func TestWrongOverrides(t *testing.T) {
	for _, c := range []struct{ name, env, set, want string }{
		{"unknown key", "PROJECTOR_CLICKHOUSE__PASWORD=geheim", "", `environment variable PROJECTOR_CLICKHOUSE__PASWORD: clickhouse.pasword: unknown key; did you mean password?`},
		{"unknown section", "PROJECTOR_CLICKHOUS__PASSWORD=geheim", "", `environment variable PROJECTOR_CLICKHOUS__PASSWORD: clickhous.password: unknown key; did you mean clickhouse?`},
		{"one underscore", "PROJECTOR_CLICKHOUSE_PASSWORD=geheim", "", `environment variable PROJECTOR_CLICKHOUSE_PASSWORD: clickhouse_password: unknown key; two underscores stand between levels: did you mean PROJECTOR_CLICKHOUSE__PASSWORD?`},
		{"not a number", "PROJECTOR_LANES=many", "", `environment variable PROJECTOR_LANES: lanes: want a whole number in plain digits, got "many"`},
		{"no unit", "PROJECTOR_BATCH__DELAY=1", "", `environment variable PROJECTOR_BATCH__DELAY: batch.delay: "1" has no unit; write for example 1s (units: ms, s, m, h)`},
		{"not a bool", "PROJECTOR_KAFKA__TLS__ENABLED=1", "", `environment variable PROJECTOR_KAFKA__TLS__ENABLED: kafka.tls.enabled: want true or false, got the text "1"`},
		{"a section", "PROJECTOR_KAFKA=localhost", "", `environment variable PROJECTOR_KAFKA: kafka: holds several keys; set one of them, or write it in the file`},
		{"a list's entry", "PROJECTOR_PROJECTIONS__0__TABLE=x", "", `environment variable PROJECTOR_PROJECTIONS__0__TABLE: projections.0.table: projections is a list; set it in the file`},
		{"below a value", "PROJECTOR_LANES__X=1", "", `environment variable PROJECTOR_LANES__X: lanes.x: lanes is one value and has no key "x"`},
		{"not UTF-8", "PROJECTOR_KAFKA__GROUP=\xff", "", `environment variable PROJECTOR_KAFKA__GROUP: kafka.group: want a text, got bytes that are not UTF-8`},
		{"twin of a variable", "PROJECTOR_CLICKHOUSE__PASSWORD_FILE=/x", "clickhouse.password=geheim", `environment variable PROJECTOR_CLICKHOUSE__PASSWORD_FILE: clickhouse.password_file: given together with password; keep one of the two`},
		{"flag without value", "", "lanes", `--set: want KEY=VALUE, for example lanes=2; there is no = after "lanes"`},
		{"secret alone", "", "geheim", `--set: want KEY=VALUE, for example lanes=2; number 1 has no = and does not begin with a key, so it is not shown`},
		{"secret with a sign of equality", "", "Zm9vYmFyMQ==", `--set: want KEY=VALUE, for example lanes=2; what stands before the = of number 1 is not a key, so it is not shown`},
		{"secret with a sign of equality after a key", "", "lanes:geheim=1", `--set: want KEY=VALUE, for example lanes=2; what stands before the = of number 1 is not a key, so it is not shown`},
		{"flag of an unknown key", "", "lane=2", `--set: lane: unknown key; did you mean lanes?`},
		{"secret after another sign", "", "clickhouse.password:geheim", `--set: want KEY=VALUE, for example lanes=2; there is no = after "clickhouse.password"`},
		{"entry of a list", "PROJECTOR_KAFKA__BROKERS=a:1,b", "", `environment variable PROJECTOR_KAFKA__BROKERS: kafka.brokers[1]: "b" is not host:port; write for example localhost:9092`},
		{"entry that the file has as well", "", "clickhouse.addresses=ch", `--set: clickhouse.addresses[0]: "ch" is not host:port; write for example localhost:9000`},
		{"password in a URL", "", "clickhouse.addresses=clickhouse://default:geheim@ch:9000", `--set: clickhouse.addresses[0]: "@ch:9000" is not host:port (what stands before the @ is not shown: users and passwords have keys of their own); write for example localhost:9000`},
		{"password before a host", "PROJECTOR_KAFKA__BROKERS=geheim@k:9092", "", `environment variable PROJECTOR_KAFKA__BROKERS: kafka.brokers[0]: "@k:9092" is not host:port (what stands before the @ is not shown: users and passwords have keys of their own); write for example localhost:9092`},
		{"password after an empty user", "", "clickhouse.addresses=:geheim@ch", `--set: clickhouse.addresses[0]: "@ch" is not host:port (what stands before the @ is not shown: users and passwords have keys of their own); write for example localhost:9000`},
		{"flag out of range", "", "lanes=-1", `--set: lanes: -1 is out of range; use 0 to 1024`},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := Input{Path: "../../config.yaml", Environ: []string{c.env}}
			if c.set != "" {
				in.Set = []string{c.set}
			}
			_, err := Load(in)
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestNoFile(t *testing.T) {
	_, err := Load(Input{Path: "testdata/none.yaml"})
	if want := "testdata/none.yaml: no such file; name one with --config or PROJECTOR_CONFIG"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := Load(Input{Path: "testdata"}); err == nil {
		t.Error("a folder loads")
	}
}

func TestCheckFiles(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("geheim\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	in := Input{Path: "../../config.yaml", Set: []string{"clickhouse.password_file=" + secret}}
	if err := load(t, in).CheckFiles(); err != nil {
		t.Error(err)
	}
	in.Set = []string{"clickhouse.password_file=" + dir + "/none", "kafka.tls.enabled=true", "kafka.tls.ca_file=" + secret}
	err := load(t, in).CheckFiles()
	problems, ok := errors.AsType[Problems](err)
	if !ok || len(problems) != 2 || strings.Contains(err.Error(), "geheim") {
		t.Fatalf("got %v; want the missing file and the bad certificate", err)
	}
	if problems[0].Key != "kafka.tls" || problems[1].Key != "clickhouse.password_file" {
		t.Errorf("got %v", err)
	}
}

// TestCheckRun holds that the files of the server are checked for those who serve, and for nobody else: a Job that
// applies the schema does not have them.
func TestCheckRun(t *testing.T) {
	in := Input{Path: "../../config.yaml", Set: []string{
		"http.token_file=/nowhere/token", "http.tls.enabled=true", "http.tls.cert_file=/nowhere/cert", "http.tls.key_file=/nowhere/key",
	}}
	cfg := load(t, in)
	if err := cfg.CheckFiles(); err != nil {
		t.Error(err)
	}
	for _, check := range []func() error{cfg.CheckRun, func() error { return cfg.CheckRelay(true) }} {
		err := check()
		for _, want := range []string{"http.token_file: read secret: open /nowhere/token", "http.tls: tls: read cert_file and key_file"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		}
	}
}

func TestPrivate(t *testing.T) {
	for _, c := range []struct {
		http HTTP
		want bool
	}{
		{Default().HTTP, true},
		{HTTP{Address: "localhost:8080"}, true},
		{HTTP{Address: "[::1]:0"}, true},
		{HTTP{Address: ":8080"}, false},
		{HTTP{Address: "0.0.0.0:8080"}, false},
		{HTTP{Address: "[::]:8080"}, false},
		{HTTP{Address: "projector:8080"}, false},
		{HTTP{Address: ":8080", TokenFile: "/x"}, true},
		{HTTP{Address: ":8080", Token: "x"}, true},
		{HTTP{Address: ":8080", TLS: ServerTLS{Enabled: true, CertFile: "c", KeyFile: "k"}}, false},
		{HTTP{Address: ":8080", TLS: ServerTLS{Enabled: true, CertFile: "c", KeyFile: "k", ClientCAFile: "ca"}}, true},
	} {
		if got := c.http.Private(); got != c.want {
			t.Errorf("%+v is private: %t", c.http, got)
		}
	}
}

// FuzzLoad holds that no file makes the loader panic, that every refusal says
// where, and that whatever is accepted can be printed and read again.
func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, "testdata/full.yaml", "../../config.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, "LANES=2")
		f.Add(text, "DEAD_LETTER__STOP_RATIO=0") // never stop, and not its default
	}
	f.Add([]byte("a: &a [*a]"), "KAFKA__SASL__USERNAME=x")
	f.Add([]byte("kafka: &k {tls: *k}"), "CLICKHOUSE__SETTINGS__A=1")
	f.Fuzz(func(t *testing.T, text []byte, variable string) {
		in := Input{Path: "config.yaml", Environ: []string{"PROJECTOR_" + variable}}
		cfg, err := parse(in, text)
		if err != nil {
			problems, ok := errors.AsType[Problems](err)
			if !ok {
				t.Fatalf("error %T %v; want Problems", err, err)
			}
			for _, p := range problems {
				if p.Origin == "" || p.Message == "" {
					t.Fatalf("a problem without place or message: %#v", p)
				}
			}
			return
		}
		printed, err := cfg.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := parse(Input{Path: "printed"}, printed)
		if err != nil {
			t.Fatalf("%v\n%s", err, printed)
		}
		but := cmp.Options{cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(Config{}), cmp.Comparer(func(a, b Secret) bool { return a.String() == b.String() })}
		if d := cmp.Diff(cfg, again, but); d != "" {
			t.Fatalf("it is read again as another one:\n%s\n%s", d, printed)
		}
		twice, err := again.YAML()
		if err != nil || !bytes.Equal(printed, twice) {
			t.Fatalf("printed twice: %v\n%s", err, cmp.Diff(string(printed), string(twice)))
		}
		programs, err := cfg.JSON()
		if err != nil || !json.Valid(programs) {
			t.Fatalf("not JSON: %v\n%s", err, programs)
		}
		again, err = parse(Input{Path: "printed"}, programs)
		if err != nil {
			t.Fatalf("%v\n%s", err, programs)
		}
		if thrice, err := again.YAML(); err != nil || !bytes.Equal(printed, thrice) {
			t.Fatalf("printed as JSON: %v\n%s", err, cmp.Diff(string(printed), string(thrice)))
		}
	})
}
