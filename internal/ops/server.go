package ops

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log" //nolint:depguard // net/http and promhttp take no other logger; what they write goes to ours
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"github.com/chprojector/projector/internal/credentials"
)

// Config says where the server listens and whom it lets in.
type Config struct {
	Address string             // host:port
	Token   credentials.Secret // demanded of everybody but the probes; zero: of nobody
	TLS     credentials.ServerTLS
	Pprof   bool // serve profiles of the process
}

// Health is asked by the probes. Each answer lists the reasons against it, one
// sentence each; none means yes. Answers come from memory: a probe that asks a
// server would time out together with it.
type Health interface {
	// Ready says why the process does not make progress now. It may pass.
	Ready() []string
	// Live says why only a restart can help.
	Live() []string
}

// Deps is what the server shows.
type Deps struct {
	Metrics prometheus.Gatherer
	Health  Health
	Status  func(context.Context) any // what the status page shows, as JSON has it
	History func(context.Context) any // the lines of its charts
	Log     zerolog.Logger
}

// Server serves /metrics, /livez, /readyz and the status page.
type Server struct {
	cfg   Config
	deps  Deps
	http  *http.Server
	done  chan error
	bound net.Addr

	certificate atomic.Pointer[tls.Config] // the last one that could be read
}

// NewServer makes a server. Nothing listens yet, and no file is read.
func NewServer(cfg Config, deps Deps) *Server {
	s := &Server{cfg: cfg, deps: deps, done: make(chan error, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", s.live)
	mux.HandleFunc("GET /readyz", s.ready)
	mux.Handle("GET /metrics", promhttp.HandlerFor(deps.Metrics, promhttp.HandlerOpts{
		ErrorLog: log.New(deps.Log, "metrics: ", 0),
	}))
	mux.HandleFunc("GET /{$}", s.file("page.html"))
	for _, name := range []string{"page.css", "page.js", "icon.svg"} {
		mux.HandleFunc("GET /assets/"+name, s.file(name))
	}
	mux.HandleFunc("GET /api/status", s.data(deps.Status))
	mux.HandleFunc("GET /api/history", s.data(deps.History))
	if cfg.Pprof { // without cmdline: a flag may hold a secret
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	s.http = &http.Server{
		Handler:           s.guarded(mux),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.New(deps.Log, "http: ", 0),
	}
	return s
}

// Start reads the token and the certificate once and listens, so that a missing
// file and a port in use are errors here, and serves.
func (s *Server) Start(ctx context.Context) error {
	if _, err := s.cfg.Token.Read(); err != nil {
		return fmt.Errorf("http.token_file: %w", err)
	}
	encrypted, err := s.tls()
	if err != nil {
		return fmt.Errorf("http.%w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.cfg.Address)
	if err != nil {
		return fmt.Errorf("http.address: %w", err)
	}
	s.bound = listener.Addr()
	if encrypted != nil {
		listener = tls.NewListener(listener, encrypted)
	}
	go func() { s.done <- s.http.Serve(listener) }()
	return nil
}

// Addr is where the server listens, once it is started.
func (s *Server) Addr() string { return s.bound.String() }

// Stop lets requests under way finish until ctx is done, then cuts them off.
func (s *Server) Stop(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("stop the http server: %w", err), s.http.Close())
	}
	if serve := <-s.done; !errors.Is(serve, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("http server: %w", serve))
	}
	return err
}

// verdict is the body of a probe.
type verdict struct {
	OK      bool     `json:"ok"`
	Reasons []string `json:"reasons,omitempty"`
}

func (s *Server) live(w http.ResponseWriter, _ *http.Request) { s.answer(w, s.deps.Health.Live()) }

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) { s.answer(w, s.deps.Health.Ready()) }

func (s *Server) answer(w http.ResponseWriter, reasons []string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if len(reasons) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	body, err := json.Marshal(verdict{OK: len(reasons) == 0, Reasons: reasons})
	if err == nil {
		_, err = w.Write(append(body, '\n'))
	}
	if err != nil {
		s.deps.Log.Debug().Err(err).Msg("answer a probe")
	}
}
