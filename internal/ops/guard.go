package ops

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"net/http"
	"strings"

	"github.com/chprojector/projector/internal/credentials"
)

// guarded lets through who shows what is configured: a certificate of a client
// authority, the token, or both. The probes are open.
//
// The token comes as a bearer token, as Prometheus sends it, or as the password
// of HTTP basic authentication, whatever the user: that is what browsers ask
// their user for and send along with every request of the page. Its file is
// read for each request, so that a rotated one needs no restart; there are few
// requests. A login page with a session was rejected: more code to get wrong,
// for people who look through a port-forward.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/livez" || r.URL.Path == "/readyz" { // the kubelet has neither token nor certificate
			next.ServeHTTP(w, r)
			return
		}
		if s.cfg.TLS.ClientCAFile != "" && len(r.TLS.VerifiedChains) == 0 {
			http.Error(w, "a client certificate is demanded here: http.tls.client_ca_file names its authorities", http.StatusForbidden)
			return
		}
		if s.cfg.Token == (credentials.Secret{}) {
			next.ServeHTTP(w, r)
			return
		}
		token, err := s.cfg.Token.Read()
		if err != nil { // nobody can be told from anybody
			s.deps.Log.Error().Err(err).Msg("http.token_file cannot be read: nobody is let in")
			http.Error(w, "the token to compare with cannot be read; see the log", http.StatusServiceUnavailable)
			return
		}
		if !equal(shown(r), token) {
			w.Header().Set("WWW-Authenticate", `Basic realm="projector: any name, the token as password", charset="UTF-8"`)
			http.Error(w, "the token is demanded here: as a bearer token, or as the password of basic authentication", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// shown is the token that a request brings, "" if none.
func shown(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return token
}

// equal compares in a time that tells nothing, not even the length.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// tls is how connections are encrypted, nil if they are not. The certificate is
// read for each connection. One that cannot be read, because it is being
// replaced, is stood in for by the last that could: probes must go on.
func (s *Server) tls() (*tls.Config, error) {
	first, err := s.cfg.TLS.Config()
	if first == nil || err != nil {
		return nil, err
	}
	s.certificate.Store(first)
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			fresh, err := s.cfg.TLS.Config()
			if err != nil {
				s.deps.Log.Warn().Err(err).Msg("http.tls: the certificate cannot be read; serving with the one before")
				return s.certificate.Load(), nil
			}
			s.certificate.Store(fresh)
			return fresh, nil
		},
	}, nil
}
