package deadletter

import (
	"slices"
	"time"
)

// Selection chooses letters. An empty field chooses all.
type Selection struct {
	From, To time.Time // parked at or after From and before To
	Classes  []string
	Columns  []string
	Keys     []string // of the records, byte by byte
}

// Has reports whether l is chosen.
func (s *Selection) Has(l *Letter) bool {
	parked := l.Record.Timestamp
	return !parked.Before(s.From) && (s.To.IsZero() || parked.Before(s.To)) &&
		(len(s.Classes) == 0 || slices.Contains(s.Classes, l.Info.Class)) &&
		(len(s.Columns) == 0 || slices.Contains(s.Columns, l.Info.Column)) &&
		(len(s.Keys) == 0 || slices.Contains(s.Keys, string(l.Record.Key)))
}
