package fitness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
)

// Model computes from raw events what the current view must hold: of each data id the highest version, unless that one
// is a deletion. It decodes with encoding/json and math/big only. It takes about 150 bytes a record, whatever the
// number of events. The zero value is an empty model. A Model is not safe for concurrent use.
type Model struct {
	index  map[uint64]uint32 // data id to place in states
	states []state
	units  map[string]string // one copy of each unit
	events uint64
}

// state is one record at its highest version.
type state struct {
	dataID, detectID, userID, version uint64
	projectID                         uint32
	deleted                           bool
	result                            int64 // in thousandths
	unit, eventID                     string
}

// event is the wire form as the model reads it. A raw message is nil for a missing field and keeps null and every digit.
type event struct {
	EventID       json.RawMessage `json:"eventId"`
	DataID        json.RawMessage `json:"dataId"`
	DetectID      json.RawMessage `json:"detectId"`
	UserID        json.RawMessage `json:"userId"`
	ProjectID     json.RawMessage `json:"projectId"`
	Version       json.RawMessage `json:"version"`
	Result        json.RawMessage `json:"result"`
	Unit          json.RawMessage `json:"unit"`
	IsDeleted     json.RawMessage `json:"isDeleted"`
	SchemaVersion json.RawMessage `json:"schemaVersion"`
}

// Add takes one event in, in any order and any number of times. It refuses an event it cannot read, and one that gives
// the record's highest version another content, for which no current state is right; the model is then as before.
// It is no judge of poison events: encoding/json takes duplicate names and invalid UTF-8 without a word.
func (m *Model) Add(value []byte) error {
	var e event
	if err := json.Unmarshal(value, &e); err != nil {
		return fmt.Errorf("model: decode %.200q: %w", value, err)
	}
	s, err := e.state()
	if err != nil {
		return fmt.Errorf("model: event %.200q: %w", value, err)
	}
	return m.put(s)
}

func (m *Model) put(s state) error {
	if m.index == nil {
		m.index, m.units = map[uint64]uint32{}, map[string]string{}
	}
	i, known := m.index[s.dataID]
	switch {
	case !known:
		i = uint32(len(m.states))
		m.index[s.dataID] = i
		m.states = append(m.states, state{})
	case m.states[i] == s || s.version < m.states[i].version:
		m.events++
		return nil
	case s.version == m.states[i].version:
		return fmt.Errorf("model: version %d of data_id %d has two contents: %+v and %+v",
			s.version, s.dataID, m.states[i], s)
	}
	if unit, ok := m.units[s.unit]; ok {
		s.unit = unit
	} else {
		m.units[s.unit] = s.unit
	}
	m.states[i] = s
	m.events++
	return nil
}

// Events returns how many events were taken in.
func (m *Model) Events() uint64 { return m.events }

// Records returns how many data ids the model knows, deleted ones included.
func (m *Model) Records() int { return len(m.states) }

// Live returns how many rows the current view must hold.
func (m *Model) Live() int {
	live := 0
	for i := range m.states {
		if !m.states[i].deleted {
			live++
		}
	}
	return live
}

func (e *event) state() (s state, err error) {
	if string(e.SchemaVersion) != "1" {
		return s, fmt.Errorf("schemaVersion is %q, want 1", e.SchemaVersion)
	}
	var project uint64
	for _, field := range [...]struct {
		name string
		raw  json.RawMessage
		bits int
		to   *uint64
	}{
		{"dataId", e.DataID, 64, &s.dataID},
		{"detectId", e.DetectID, 64, &s.detectID},
		{"userId", e.UserID, 64, &s.userID},
		{"projectId", e.ProjectID, 32, &project},
		{"version", e.Version, 64, &s.version},
	} {
		if *field.to, err = strconv.ParseUint(string(field.raw), 10, field.bits); err != nil {
			return s, fmt.Errorf("%s: %w", field.name, err)
		}
	}
	s.projectID = uint32(project)
	if s.result, err = thousandths(string(e.Result)); err != nil {
		return s, fmt.Errorf("result: %w", err)
	}
	if s.deleted = string(e.IsDeleted) == "true"; !s.deleted && string(e.IsDeleted) != "false" {
		return s, fmt.Errorf("isDeleted is %q, want a boolean", e.IsDeleted)
	}
	if s.unit, err = unquote(e.Unit); err != nil {
		return s, fmt.Errorf("unit: %w", err)
	}
	if s.eventID, err = unquote(e.EventID); err != nil {
		return s, fmt.Errorf("eventId: %w", err)
	}
	return s, nil
}

// unquote reads a JSON string. Most need no unescaping, and a second run of encoding/json for each would show.
func unquote(raw json.RawMessage) (string, error) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", fmt.Errorf("%q is no string", raw)
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), nil
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err
}

// thousandths reads any decimal notation as an exact count of thousandths. Short plain numbers take a way without
// math/big, which would cost more than all the rest of the model.
func thousandths(text string) (int64, error) {
	if n, ok := plainThousandths(text); ok {
		return n, nil
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return 0, fmt.Errorf("%q is no number", text)
	}
	r.Mul(r, big.NewRat(1000, 1))
	if !r.IsInt() || !r.Num().IsInt64() {
		return 0, fmt.Errorf("%s is no count of thousandths in 64 bits", text)
	}
	return r.Num().Int64(), nil
}

func plainThousandths(text string) (n int64, ok bool) {
	digits := text
	if len(digits) > 0 && digits[0] == '-' {
		digits = digits[1:]
	}
	if len(digits) == 0 || len(digits) > 15 {
		return 0, false
	}
	decimals := -1
	for _, c := range []byte(digits) {
		switch {
		case c >= '0' && c <= '9' && decimals < 3:
			n = n*10 + int64(c-'0')
			if decimals >= 0 {
				decimals++
			}
		case c == '.' && decimals < 0:
			decimals = 0
		default:
			return 0, false
		}
	}
	if decimals == 0 || digits[0] == '.' {
		return 0, false
	}
	for range 3 - max(decimals, 0) {
		n *= 10
	}
	if len(digits) < len(text) {
		n = -n
	}
	return n, true
}
