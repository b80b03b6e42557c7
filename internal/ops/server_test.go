package ops

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// health answers what the test last stored.
type health struct{ ready, live atomic.Pointer[[]string] }

func (h *health) Ready() []string { return answerOf(&h.ready) }
func (h *health) Live() []string  { return answerOf(&h.live) }

func answerOf(p *atomic.Pointer[[]string]) []string {
	if reasons := p.Load(); reasons != nil {
		return *reasons
	}
	return nil
}

func start(t *testing.T, h *health) string {
	t.Helper()
	return startWith(t, Config{Address: "127.0.0.1:0"}, h)
}

func startWith(t *testing.T, cfg Config, h *health) string {
	t.Helper()
	build := Build{Version: "v1.2.3", Revision: "0123456789abcdef", Go: "go1.26"}
	s := NewServer(cfg, Deps{
		Metrics: NewRegistry(build), Health: h, Log: zerolog.Nop(),
		Status:  func(context.Context) any { return map[string]string{"text": "<script>"} },
		History: func(context.Context) any { return Past{Lines: []Line{{Points: []reading{1, reading(math.NaN())}}}} },
	})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := s.Stop(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	if cfg.TLS.Enabled {
		return "https://" + s.Addr()
	}
	return "http://" + s.Addr()
}

func get(t *testing.T, url string) (int, string, http.Header) {
	t.Helper()
	return as(t, http.DefaultClient, url, "")
}

func TestProbes(t *testing.T) {
	h := &health{}
	url := start(t, h)
	for _, probe := range []struct {
		path string
		set  *atomic.Pointer[[]string]
	}{{"/readyz", &h.ready}, {"/livez", &h.live}} {
		if code, body, _ := get(t, url+probe.path); code != 200 || body != "{\"ok\":true}\n" {
			t.Errorf("%s of a healthy process: %d %s", probe.path, code, body)
		}
		probe.set.Store(&[]string{"orders: inserts fail for 2m: connection refused"})
		code, body, _ := get(t, url+probe.path)
		var got verdict
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err)
		}
		if want := (verdict{Reasons: *probe.set.Load()}); code != 503 || !cmp.Equal(got, want) {
			t.Errorf("%s in trouble: %d %s", probe.path, code, body)
		}
		probe.set.Store(nil)
	}
}

func TestMetrics(t *testing.T) {
	code, body, _ := get(t, start(t, &health{})+"/metrics")
	for _, want := range []string{`projector_build_info{go="go1.26",revision="0123456789abcdef",version="v1.2.3"} 1`, "go_goroutines", "process_resident_memory_bytes"} {
		if code != 200 || !strings.Contains(body, want) {
			t.Errorf("%d; no %s in\n%s", code, want, body)
		}
	}
}

func TestPage(t *testing.T) {
	url := start(t, &health{})
	for _, c := range []struct{ path, kind, want string }{
		{"/", "text/html; charset=utf-8", `<script src="assets/page.js"`},
		{"/assets/page.js", "text/javascript; charset=utf-8", "api/status"},
		{"/assets/page.css", "text/css; charset=utf-8", "prefers-color-scheme: dark"},
		{"/assets/icon.svg", "image/svg+xml", "<svg"},
		{"/api/status", "application/json", `{"text":"\u003cscript\u003e"}`},
		{"/api/history", "application/json", `"points":[1,null]`},
	} {
		code, body, header := get(t, url+c.path)
		if code != 200 || header.Get("Content-Type") != c.kind || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d, %v, no %s in\n%s", c.path, code, header, c.want, body)
		}
		policy := header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") || header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", c.path, header)
		}
	}
	// Nothing comes from elsewhere, whatever the policy says.
	for _, name := range []string{"page.html", "page.css", "page.js", "icon.svg"} {
		text, err := assets.ReadFile("assets/" + name)
		if err != nil {
			t.Fatal(err)
		}
		rest := strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", "")
		if regexp.MustCompile(`//[a-z]+\.|url\(|@import|innerHTML|\sstyle=|\son[a-z]+=`).MatchString(rest) {
			t.Errorf("%s refers to elsewhere, or holds what the policy forbids", name)
		}
	}
	if code, _, _ := get(t, url+"/none"); code != 404 {
		t.Errorf("/none is %d", code)
	}
	response, err := http.Post(url+"/readyz", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST is %d", response.StatusCode)
	}
}

func TestPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s := NewServer(Config{Address: taken.Addr().String()}, Deps{Metrics: NewRegistry(Build{})})
	if err := s.Start(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "http.address: ") {
		t.Errorf("got %v; want an error that names the key", err)
	}
}

func TestStreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := NewStreak(zerolog.New(&out), "reach ClickHouse")
		lines := func() (got []string) {
			for line := range strings.Lines(out.String()) {
				var l struct {
					Error, Message string
					Attempts       int
				}
				if err := json.Unmarshal([]byte(line), &l); err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprintf("%s|%s|%d", l.Message, l.Error, l.Attempts))
			}
			out.Reset()
			return got
		}
		s.Succeed() // nothing was wrong: nothing is said
		for range 100 {
			s.Fail(io.EOF)
			time.Sleep(time.Second) //nolint:forbidigo // the bubble's clock is fake
		}
		s.Fail(io.ErrUnexpectedEOF)
		s.Succeed()
		s.Fail(io.EOF)
		want := []string{
			"reach ClickHouse: trying again|EOF|1",
			"reach ClickHouse: trying again|EOF|31",
			"reach ClickHouse: trying again|EOF|61",
			"reach ClickHouse: trying again|EOF|91",
			"reach ClickHouse: trying again|unexpected EOF|101",
			"reach ClickHouse: done||101",
			"reach ClickHouse: trying again|EOF|1",
		}
		if diff := cmp.Diff(want, lines()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

func TestBuild(t *testing.T) {
	for want, b := range map[string]Build{
		"projector v1 (0123456789ab, modified, 2026-01-02T03:04:05Z) go1.26": {Version: "v1", Revision: "0123456789abcdef", Modified: true, Time: "2026-01-02T03:04:05Z", Go: "go1.26"},
		"projector development go1.26":                                       {Version: "development", Go: "go1.26"},
	} {
		if got := b.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if b := ReadBuild("v9"); b.Version != "v9" || b.Go == "" {
		t.Errorf("got %+v", b)
	}
	if b := ReadBuild(""); b.Version == "" || b.Version == "(devel)" {
		t.Errorf("got %+v", b)
	}
}
