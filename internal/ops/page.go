package ops

import (
	"context"
	"embed"
	"encoding/json"
	"net/http"
	"path"
	"time"
)

// The page is a few files as they are: no build step, nothing from elsewhere.
//
//go:embed assets
var assets embed.FS

// policy lets the page load what this server serves and nothing else: what an
// event holds can neither run as a script nor fetch anything.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// file serves one of the page's files.
func (s *Server) file(name string) http.HandlerFunc {
	text, err := assets.ReadFile("assets/" + name)
	if err != nil {
		panic(err) // it is compiled in
	}
	// The types that the system's tables name are not always these.
	kind := map[string]string{
		".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
		".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
	}[path.Ext(name)]
	return func(w http.ResponseWriter, _ *http.Request) { s.send(w, kind, text) }
}

// patience is how long the page's data waits for servers that have not
// answered yet.
const patience = 1500 * time.Millisecond

// data serves as JSON what ask returns.
func (s *Server) data(ask func(context.Context) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		text, err := json.Marshal(ask(ctx))
		if err != nil {
			s.deps.Log.Error().Err(err).Str("path", r.URL.Path).Msg("write as JSON")
			http.Error(w, "this could not be written as JSON; see the log", http.StatusInternalServerError)
			return
		}
		s.send(w, "application/json", append(text, '\n'))
	}
}

func (s *Server) send(w http.ResponseWriter, kind string, text []byte) {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	if _, err := w.Write(text); err != nil {
		s.deps.Log.Debug().Err(err).Msg("send the status page")
	}
}
