package ops

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/chprojector/projector/internal/credentials"
	"github.com/chprojector/projector/internal/credentials/testca"
	"github.com/chprojector/projector/internal/testenv"
)

// private are paths that need the token: what exists, and what does not.
var private = []string{"/", "/metrics", "/api/status", "/api/history", "/assets/page.js", "/assets/icon.svg", "/debug/pprof/", "/none", "/livez/", "/readyz/..", "//livez"}

// as asks for a path with one header of authorization.
func as(t *testing.T, client *http.Client, url, authorization string) (int, string, http.Header) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body), response.Header
}

// basic is the header that browsers send.
func basic(user, password string) string {
	r := &http.Request{Header: http.Header{}}
	r.SetBasicAuth(user, password)
	return r.Header.Get("Authorization")
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// straight follows no redirect, so that what a path itself answers is seen.
var straight = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// TestToken holds that without the token nobody sees more than the probes, whatever path they try, and that a rotated
// token holds from the next request on.
func TestToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	writeFile(t, file, "first token\n")
	url := startWith(t, Config{Address: "127.0.0.1:0", Token: credentials.Secret{File: file}, Pprof: true}, &health{})
	for _, probe := range []string{"/livez", "/readyz"} {
		if code, _, _ := as(t, straight, url+probe, ""); code != http.StatusOK {
			t.Errorf("%s without the token is %d", probe, code)
		}
	}
	refused := []string{
		"", "Bearer", "Bearer ", "Bearer first", "Bearer  first token", "first token", "Digest first token",
		"Bearer " + file, basic("first token", ""), basic("", ""), basic("admin", "first token\n"), "Basic first token",
	}
	for _, path := range private {
		for _, header := range refused {
			code, body, answer := as(t, straight, url+path, header)
			if code != http.StatusUnauthorized || !strings.HasPrefix(answer.Get("WWW-Authenticate"), "Basic realm=") {
				t.Errorf("%s with %q is %d: %s", path, header, code, body)
			}
			if strings.Contains(body, "first token") {
				t.Errorf("%s tells the token", path)
			}
		}
	}
	for _, header := range []string{"Bearer first token", "bearer first token", basic("", "first token"), basic("anna", "first token")} {
		for path, want := range map[string]int{"/": 200, "/metrics": 200, "/api/status": 200, "/assets/page.js": 200, "/debug/pprof/": 200, "/none": 404} {
			if code, _, _ := as(t, straight, url+path, header); code != want {
				t.Errorf("%s with %q is %d, want %d", path, header, code, want)
			}
		}
	}
	writeFile(t, file, "second token\n")
	for header, want := range map[string]int{"Bearer first token": 401, "Bearer second token": 200} {
		if code, _, _ := as(t, straight, url+"/metrics", header); code != want {
			t.Errorf("%s after the rotation is %d", header, code)
		}
	}
	for _, gone := range []func() error{func() error { return os.Truncate(file, 0) }, func() error { return os.Remove(file) }} {
		if err := gone(); err != nil {
			t.Fatal(err)
		}
		for header, want := range map[string]int{"": 503, "Bearer ": 503, "Bearer second token": 503} {
			if code, body, _ := as(t, straight, url+"/metrics", header); code != want || strings.Contains(body, "projector_") {
				t.Errorf("%q without a file to compare with is %d", header, code)
			}
		}
		if code, _, _ := as(t, straight, url+"/livez", ""); code != http.StatusOK {
			t.Errorf("the probe is %d", code)
		}
	}
}

// TestPprof is off unless it is asked for, and never shows the command line, whose flags may hold secrets.
func TestPprof(t *testing.T) {
	for _, on := range []bool{false, true} {
		url := startWith(t, Config{Address: "127.0.0.1:0", Pprof: on}, &health{})
		for path, there := range map[string]bool{"/debug/pprof/": on, "/debug/pprof/heap": on, "/debug/pprof/goroutine": on, "/debug/pprof/cmdline": false, "/debug/vars": false} {
			if code, _, _ := get(t, url+path); (code == http.StatusOK) != there {
				t.Errorf("%s is %d with pprof %t", path, code, on)
			}
		}
	}
}

// TestTLS serves with a certificate that is replaced meanwhile, broken in between, and asks for one of the client
// everywhere but at the probes.
func TestTLS(t *testing.T) {
	ca, others := testca.New(t), testca.New(t)
	_, cert, key := ca.Issue("projector.internal")
	client, _, _ := ca.Issue("prometheus")
	stranger, _, _ := others.Issue("prometheus")
	connect := func(pairs ...tls.Certificate) *http.Client { // keeps no connection, so that each request shakes hands
		return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), Certificates: pairs}}}
	}
	url := startWith(t, Config{Address: "127.0.0.1:0", TLS: credentials.ServerTLS{Enabled: true, CertFile: cert, KeyFile: key, ClientCAFile: ca.File}}, &health{})
	for _, c := range []struct {
		name, path string
		client     *http.Client
		code       int
	}{
		{"probe", "/livez", connect(), 200},
		{"probe", "/readyz", connect(), 200},
		{"no certificate", "/metrics", connect(), 403},
		{"no certificate", "/", connect(), 403},
		{"certificate", "/metrics", connect(client), 200},
	} {
		if code, _, _ := as(t, c.client, url+c.path, "Bearer x"); code != c.code {
			t.Errorf("%s: %s is %d, want %d", c.name, c.path, code, c.code)
		}
	}
	if response, err := connect(stranger).Get(url + "/livez"); err == nil {
		response.Body.Close()
		t.Error("a certificate of another authority is let in")
	}
	if code, _, _ := get(t, strings.Replace(url, "https", "http", 1)+"/livez"); code != http.StatusBadRequest {
		t.Errorf("without TLS it answers %d", code)
	}

	serial := func() string {
		t.Helper()
		response, err := connect().Get(url + "/livez")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.TLS.PeerCertificates[0].SerialNumber.String()
	}
	before := serial()
	_, newCert, newKey := ca.Issue("projector.internal")
	for _, f := range [][2]string{{newCert, cert}, {newKey, key}} { // in between the two do not fit
		text, err := os.ReadFile(f[0])
		if err != nil {
			t.Fatal(err)
		}
		if f[1] == key {
			if now := serial(); now != before {
				t.Errorf("half a certificate changed the serial number from %s to %s", before, now)
			}
		}
		writeFile(t, f[1], string(text))
	}
	if now := serial(); now == before {
		t.Error("the new certificate is not served")
	}
}

// TestStartReadsFiles holds that what is missing is an error at the start, with its key.
func TestStartReadsFiles(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for key, cfg := range map[string]Config{
		"http.token_file: read secret: ": {Token: credentials.Secret{File: none}},
		"http.tls: read cert_file":       {TLS: credentials.ServerTLS{Enabled: true, CertFile: none, KeyFile: none}},
	} {
		cfg.Address = "127.0.0.1:0"
		s := NewServer(cfg, Deps{Metrics: NewRegistry(Build{}), Status: func(context.Context) any { return nil }, Log: zerolog.Nop()})
		if err := s.Start(t.Context()); err == nil || !strings.HasPrefix(err.Error(), key) {
			t.Errorf("got %v, want %s", err, key)
		}
	}
}

// TestPageWithToken looks at the page as somebody does who has typed the token into the browser's dialogue.
func TestPageWithToken(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a browser")
	}
	b := testenv.NewBrowser(t)
	s := NewServer(Config{Address: "127.0.0.1:0", Token: credentials.Secret{Value: "t0ken"}}, Deps{
		Metrics: NewRegistry(Build{}), Health: &health{}, Log: zerolog.Nop(),
		Status: func(context.Context) any {
			return map[string]any{"now": time.Now(), "started": time.Now(), "build": Build{Version: "v1"}, "not_ready": []string{}, "not_live": []string{}, "configuration": "lanes: 1"}
		},
		History: func(context.Context) any { return Past{Times: []time.Time{}, Lines: []Line{}} },
	})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Stop(t.Context())
	b.Call(t, "Page.navigate", map[string]string{"url": "http://anna:t0ken@" + s.Addr() + "/"}, nil)
	b.Until(t, `document.getElementById("state")?.textContent === "ready" && document.querySelector("pre")?.textContent === "lanes: 1"`)
}
