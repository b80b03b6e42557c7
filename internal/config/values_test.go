package config

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDurationReadsWhatItWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "d"))
		if got, err := ParseDuration(d.String()); err != nil || got != d {
			t.Fatalf("%d is written as %s, which reads as %d, %v", d, d, got, err)
		}
	})
}

func TestDuration(t *testing.T) {
	for written, want := range map[string]string{
		"20s": "20s", "90s": "1m30s", "60s": "1m", "3600s": "1h", "1h0m30s": "1h0m30s", "1.5s": "1.5s", "250ms": "250ms", "0s": "0s", "10m": "10m",
	} {
		if d, err := ParseDuration(written); err != nil || d.String() != want {
			t.Errorf("%s reads as %s, %v; want %s", written, d, err, want)
		}
	}
	for _, written := range []string{"", "20", "0", "1.5", "1e3", "-1s", "s", "20 s", "1d", "20sec", "NaN", "0x10"} {
		if d, err := ParseDuration(written); err == nil {
			t.Errorf("%q reads as %s; want an error", written, d)
		}
	}
}

func TestSizeReadsWhatItWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Size(rapid.Int64Range(0, math.MaxInt64).Draw(t, "s"))
		if rapid.Bool().Draw(t, "round") {
			s = s >> 40 << rapid.IntRange(0, 30).Draw(t, "shift")
		}
		if got, err := ParseSize(s.String()); err != nil || got != s {
			t.Fatalf("%d is written as %s, which reads as %d, %v", s, s, got, err)
		}
	})
}

func TestSize(t *testing.T) {
	for written, want := range map[string]Size{
		"0B": 0, "1B": 1, "512KiB": 512 << 10, "32MiB": 32 << 20, "32 MiB": 32 << 20, "1.5GiB": 3 << 29, "1kB": 1000, "1KB": 1000, "2GB": 2e9, "0.5kB": 500,
	} {
		if s, err := ParseSize(written); err != nil || s != want {
			t.Errorf("%s reads as %d, %v; want %d", written, s, err, want)
		}
	}
	for _, written := range []string{"", "32", "1e6", "32mib", "32M", "-1B", "0.3B", "MiB", "1  B", "9999999TiB", "9223372036854775808B", "Inf", "0x10B"} {
		if s, err := ParseSize(written); err == nil {
			t.Errorf("%q reads as %s; want an error", written, s)
		}
	}
}

func TestParsersRefuseWithoutPanic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.StringMatching(`-?[0-9.eE+]{0,12} ?[a-zA-Z]{0,3}`)).Draw(t, "s")
		if d, err := ParseDuration(s); err == nil && (d < 0 || isNumber(s)) {
			t.Fatalf("%q reads as %d", s, d)
		}
		if n, err := ParseSize(s); err == nil && (n < 0 || isNumber(s)) {
			t.Fatalf("%q reads as %d", s, n)
		}
	})
}

func TestSecretIsNeverShown(t *testing.T) {
	const hidden = "geheim"
	s := Secret(hidden)
	shown, err := json.Marshal(struct{ S Secret }{s})
	if err != nil {
		t.Fatal(err)
	}
	out := string(shown)
	for _, verb := range []string{"%s", "%v", "%+v", "%#v", "%q", "%x", "%d"} {
		out += fmt.Sprintf(verb, s) + fmt.Sprintf(verb, struct{ S Secret }{s}) + fmt.Sprintf(verb, &SASL{Password: s})
	}
	if strings.Contains(out, hidden) || strings.Contains(out, fmt.Sprintf("%x", hidden)) {
		t.Errorf("the secret is shown: %s", out)
	}
	if s.Reveal() != hidden {
		t.Errorf("Reveal is %q", s.Reveal())
	}
}

func TestDefaultIsWithinItsOwnLimits(t *testing.T) {
	cfg := Default()
	r := &report{places: places{}}
	check(&cfg, r)
	for _, p := range r.problems {
		switch p.Key {
		case "kafka.brokers", "clickhouse.addresses", "projections": // have no default
		default:
			t.Errorf("%s", p)
		}
	}
	if cfg.Batch.Delay.Of() != time.Second {
		t.Errorf("batch.delay is %s", cfg.Batch.Delay)
	}
}
