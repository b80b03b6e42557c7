package ops

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"
	"time"
)

// ProjectionState is one projection's line on the status page.
type ProjectionState struct {
	Name    string
	Topics  []string
	Table   string
	Group   string
	Lanes   int
	Reasons []string // why it is not ready; none = it works
}

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

func (s *Server) page(w http.ResponseWriter, _ *http.Request) {
	var out bytes.Buffer
	err := pageTemplate.Execute(&out, struct {
		Build       Build
		Started     string
		Up          time.Duration
		Projections []ProjectionState
	}{s.deps.Build, s.started.UTC().Format(time.RFC3339), time.Since(s.started).Round(time.Second), s.deps.Projections()})
	if err != nil {
		s.deps.Log.Error().Err(err).Msg("render the status page")
		http.Error(w, "the status page could not be rendered; see the log", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	if _, err := w.Write(out.Bytes()); err != nil {
		s.deps.Log.Debug().Err(err).Msg("send the status page")
	}
}
