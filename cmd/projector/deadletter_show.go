package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/chprojector/projector/internal/config"
	"github.com/chprojector/projector/internal/deadletter"
	"github.com/chprojector/projector/projector"
)

type deadletterShow struct {
	output
	Raw        bool   `help:"Write the event's value to standard output, as it is, and nothing else."`
	Bytes      int    `help:"How many bytes of the value and of each header to show at most." default:"4096" placeholder:"N"`
	Projection string `help:"Whose mapping to try; by default the one that refused the event." placeholder:"NAME"`
	Letter     string `arg:"" help:"Which letter: TOPIC/PARTITION/OFFSET, as \"deadletter list\" prints it."`
}

func (deadletterShow) Help() string {
	return `Shows one dead letter: why it is one, where the event was read, its headers, key and value,
and what the mapping of today's configuration makes of it. A letter that is only a pointer,
because its topic did not accept the value, is read from the event's own topic.

Examples:

    projector deadletter show fitness-results-dlq/0/17
    projector deadletter show fitness-results-dlq/0/17 --raw | projector mapping try -
    projector deadletter show fitness-results-dlq/0/17 -o json`
}

// shownLetter is everything about one letter.
type shownLetter struct {
	Letter     string        `json:"letter"`
	Parked     time.Time     `json:"parked_at"`
	Foreign    bool          `json:"foreign,omitempty"`
	Projection string        `json:"projection,omitempty"`
	Class      string        `json:"class,omitempty"`
	Column     string        `json:"column,omitempty"`
	Reason     string        `json:"reason,omitempty"`
	Code       int           `json:"clickhouse_code,omitempty"`
	Event      string        `json:"event,omitempty"`
	EventTime  string        `json:"event_timestamp,omitempty"`
	FailedAt   *time.Time    `json:"failed_at,omitempty"`
	Replays    int           `json:"replays"`
	Pointer    string        `json:"pointer,omitempty"`
	Headers    []shownHeader `json:"headers"`
	Key        *shownBytes   `json:"key"`
	Value      *shownBytes   `json:"value"` // null: a tombstone, or not to be had
	Gone       string        `json:"value_gone,omitempty"`
	Now        []triedNow    `json:"now"`
}

type shownHeader struct {
	Name  string      `json:"name"`
	Value *shownBytes `json:"value"`
}

// shownBytes are bytes for people or programs.
type shownBytes struct {
	Length int    `json:"length"`
	Text   string `json:"text,omitempty"`   // if they are UTF-8
	Base64 string `json:"base64,omitempty"` // if they are not
	Cut    bool   `json:"cut,omitempty"`    // there are more of them
}

// triedNow is what a projection's mapping makes of the letter now.
type triedNow struct {
	Projection string `json:"projection"`
	triedEvent
}

func show(b []byte, limit int) *shownBytes {
	if b == nil {
		return nil
	}
	s := &shownBytes{Length: len(b)}
	if len(b) > limit {
		b, s.Cut = b[:limit], true
		for range utf8.UTFMax - 1 { // a character that was cut in two is no reason for base64
			if r, n := utf8.DecodeLastRune(b); r != utf8.RuneError || n != 1 {
				break
			}
			b = b[:len(b)-1]
		}
	}
	if utf8.Valid(b) {
		s.Text = string(b)
	} else {
		s.Base64 = base64.StdEncoding.EncodeToString(b)
	}
	return s
}

// parseLetter reads TOPIC/PARTITION/OFFSET.
func parseLetter(text string) (topic string, partition int32, offset int64, err error) {
	parts := strings.Split(text, "/")
	if len(parts) == 3 && parts[0] != "" {
		p, badPartition := strconv.ParseInt(parts[1], 10, 32)
		o, badOffset := strconv.ParseInt(parts[2], 10, 64)
		if badPartition == nil && badOffset == nil && p >= 0 && o >= 0 {
			return parts[0], int32(p), o, nil
		}
	}
	return "", 0, 0, fmt.Errorf("%q is no letter: write TOPIC/PARTITION/OFFSET, such as fitness-results-dlq/0/17", text)
}

func (c deadletterShow) Run(ctx context.Context, p *program) error {
	cfg, err := p.load()
	if err != nil {
		return err
	}
	switch {
	case c.Bytes < 0:
		return usageError{errors.New("--bytes cannot be negative"), "projector deadletter show"}
	case c.Raw && c.json():
		return usageError{errors.New("--raw writes the value as it is, and -o json never does: give one of them"), "projector deadletter show"}
	}
	topic, partition, offset, err := parseLetter(c.Letter)
	if err != nil {
		return usageError{err, ""}
	}
	source, ok := strings.CutSuffix(topic, cfg.DeadLetter.Suffix)
	if !ok {
		return usageError{fmt.Errorf("%s is no dead-letter topic; those end in %s", topic, cfg.DeadLetter.Suffix), ""}
	}
	if _, err := projections(cfg, c.Projection); err != nil {
		return err
	}
	if c.Projection != "" && len(replayedInto(cfg, source, c.Projection)) == 0 {
		return usageError{fmt.Errorf("projection %s does not read the topic %s", c.Projection, source), ""}
	}
	reader, err := p.letterReader(ctx, cfg)
	if err != nil {
		return err
	}
	defer reader.Close()
	l, err := reader.At(ctx, topic, partition, offset)
	if errors.Is(err, projector.ErrRecordGone) {
		return fmt.Errorf("there is no letter %s: %w; `projector deadletter list` names those that there are", c.Letter, err)
	}
	if err != nil {
		return err
	}
	value, err := reader.Event(ctx, l)
	isGone := errors.Is(err, projector.ErrRecordGone)
	if err != nil && (!isGone || c.Raw) {
		return err
	}
	if c.Raw {
		_, err := p.stdout.Write(value)
		return err
	}
	s := describeLetter(c.Letter, l, value, c.Bytes)
	if isGone {
		s.Gone = err.Error()
	} else if s.Now, err = c.now(cfg, source, l, value); err != nil {
		return err
	}
	if c.json() {
		return printJSON(p.stdout, s)
	}
	return s.print(p.stdout, cfg)
}

// now maps the event as every projection that it may belong to would.
func (c deadletterShow) now(cfg *config.Config, source string, l *deadletter.Letter, value []byte) ([]triedNow, error) {
	tried := []triedNow{}
	for _, pr := range replayedInto(cfg, source, c.Projection) {
		if t := target(cfg, pr, source, c.Projection != ""); c.Projection == "" && !l.Foreign && !t.Has(l.Info.Projection) {
			continue
		}
		plan, err := pr.Plan()
		if err != nil {
			return nil, err
		}
		t, err := try(plan, value)
		if err != nil {
			return nil, err
		}
		tried = append(tried, triedNow{pr.Name, t})
	}
	return tried, nil
}

func describeLetter(place string, l *deadletter.Letter, value []byte, limit int) *shownLetter {
	i := l.Info
	s := &shownLetter{
		Letter: place, Parked: l.Record.Timestamp.UTC(), Foreign: l.Foreign, Projection: i.Projection, Class: i.Class, Column: i.Column,
		Reason: i.Error, EventTime: deadletter.FormatTime(i.Timestamp), Code: i.Code, Replays: i.Replays, Pointer: i.Pointer, Headers: []shownHeader{}, Now: []triedNow{},
		Key: show(l.Record.Key, limit), Value: show(value, limit),
	}
	if !l.Foreign {
		s.Event = fmt.Sprintf("%s/%d/%d", i.Topic, i.Partition, i.Offset)
	}
	if !i.FailedAt.IsZero() {
		s.FailedAt = &i.FailedAt
	}
	for _, h := range l.Own {
		s.Headers = append(s.Headers, shownHeader{h.Key, show(h.Value, limit)})
	}
	return s
}

func (s *shownLetter) print(w io.Writer, cfg *config.Config) error {
	tab := newTable(w)
	line := func(name, value string) {
		if value != "" {
			tab.row(name, value)
		}
	}
	line("letter", s.Letter)
	line("parked", instant(s.Parked))
	if s.Foreign {
		line("note", "no projector wrote this record: it has no headers of a dead letter")
	}
	line("projection", s.Projection)
	line("class", s.Class)
	line("column", s.Column)
	line("reason", s.Reason)
	if s.Code != 0 {
		line("ClickHouse error", strconv.Itoa(s.Code))
	}
	line("event", s.Event)
	line("event's time", s.EventTime)
	if s.Replays > 0 {
		line("replays", strconv.Itoa(s.Replays))
	}
	line("pointer", s.Pointer)
	line("key", s.Key.people("none"))
	for _, h := range s.Headers {
		line("header "+h.Name, h.Value.people("none"))
	}
	if s.Gone == "" {
		line("value", s.Value.people("none: a tombstone"))
	}
	line("value is gone", s.Gone)
	if err := tab.flush(); err != nil {
		return err
	}
	for _, t := range s.Now {
		i := slices.IndexFunc(cfg.Projections, func(p config.Projection) bool { return p.Name == t.Projection })
		fmt.Fprintf(w, "\nnow:\n\n")
		t.Event = 1
		if err := printTried(w, &cfg.Projections[i], []triedEvent{t.triedEvent}); err != nil {
			return err
		}
	}
	return nil
}

// people is the bytes as people read them.
func (b *shownBytes) people(absent string) string {
	if b == nil {
		return absent
	}
	text := b.Text
	if b.Base64 != "" {
		text = "base64 " + b.Base64
	}
	if b.Cut {
		text += fmt.Sprintf("… (%d bytes; --raw writes all of the value)", b.Length)
	}
	return orDash(text)
}
