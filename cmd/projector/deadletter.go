package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chprojector/projector/internal/config"
	"github.com/chprojector/projector/internal/deadletter"
	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/mapping"
	"github.com/chprojector/projector/projector"
)

type deadletterCommand struct {
	List deadletterList `cmd:"" help:"List what is parked, by class, column and age."`
	Show deadletterShow `cmd:"" help:"Show one dead letter, and what the mapping makes of it now."`
}

// chosenLetters are the flags that choose dead letters.
type chosenLetters struct {
	From   string   `help:"Parked at or after this time: 2026-06-01 (the start of that day, UTC), 2026-06-01T02:30:00Z, or how long ago, such as 2h or 3d." placeholder:"TIME"`
	To     string   `help:"Parked before this time." placeholder:"TIME"`
	Class  []string `help:"Only letters of this class, such as range or rejected. May be repeated." placeholder:"CLASS"`
	Column []string `help:"Only letters of this column. May be repeated." placeholder:"COLUMN"`
	Key    []string `help:"Only letters of records with this key. May be repeated." placeholder:"KEY" sep:"none"`
}

// letterClasses are those of the mapping, that of ClickHouse, and that of a
// letter without a value whose record a replay did not find.
func letterClasses() (all []string) {
	for _, c := range append(mapping.Classes(), projector.ClassRejected, deadletter.ClassGone) {
		all = append(all, string(c))
	}
	return all
}

func (c *chosenLetters) selection(now time.Time) (s deadletter.Selection, err error) {
	for _, class := range c.Class {
		if !slices.Contains(letterClasses(), class) { // else a replay of nothing would say that all is done
			return s, usageError{fmt.Errorf("--class: there is no class %q; use one of %s", class, strings.Join(letterClasses(), ", ")), ""}
		}
	}
	s = deadletter.Selection{Classes: c.Class, Columns: c.Column, Keys: c.Key}
	for _, f := range []struct {
		flag, text string
		to         *time.Time
	}{{"--from", c.From, &s.From}, {"--to", c.To, &s.To}} {
		if f.text == "" {
			continue
		}
		if *f.to, err = parseWhen(f.text, now); err != nil {
			return s, usageError{fmt.Errorf("%s: %w", f.flag, err), ""}
		}
		*f.to = f.to.Truncate(time.Millisecond) // Kafka's own resolution
	}
	if s.From.After(now) { // mostly a mistake about the zone, and a replay of nothing would say that all is done
		return s, usageError{fmt.Errorf("--from %s is yet to come: it is %s, and a time without a zone is UTC", instant(s.From), instant(now)), ""}
	}
	if !s.To.IsZero() && !s.From.Before(s.To) {
		return s, usageError{fmt.Errorf("--from %s is not before --to %s", instant(s.From), instant(s.To)), ""}
	}
	return s, nil
}

// checkColumns refuses a column that nobody has, once no letter was selected by
// it: one that has left the configuration may still have letters.
func (c *chosenLetters) checkColumns(cfg *config.Config) error {
	var all []string
	for i := range cfg.Projections {
		for _, column := range cfg.Projections[i].Columns {
			all = append(all, column.Name)
		}
	}
	slices.Sort(all)
	for _, column := range c.Column {
		if !slices.Contains(all, column) {
			return usageError{fmt.Errorf("--column: there is no letter of column %q, nor such a column; use one of %s", column, strings.Join(slices.Compact(all), ", ")), ""}
		}
	}
	return nil
}

type deadletterList struct {
	chosenLetters
	output
	Topic []string `help:"Only this topic, of the letters or of their events. May be repeated." placeholder:"TOPIC"`
	Max   int      `help:"How many letters to list one by one, the newest ones." default:"10" placeholder:"LETTERS"`
}

func (deadletterList) Help() string {
	return `Reads the dead-letter topics of all projections and counts what is parked: by class,
column and age, each letter once, even if it failed a replay and was parked again. A letter
stays in its topic after a replay has stored it; "projector replay --dry-run" tells which
ones the table has by now.

The exit code is 0 whether there are letters or not: this is a list, not a check.

Examples:

    projector deadletter list
    projector deadletter list --from 2026-06-01 --class range
    projector deadletter list --topic fitness-results --from 2h --max 100 -o json`
}

// letterTopic is what one dead-letter topic holds of the letters asked for.
type letterTopic struct {
	Topic   string         `json:"topic"`
	Source  string         `json:"source_topic"`
	From    *time.Time     `json:"from,omitempty"`
	To      *time.Time     `json:"to,omitempty"`
	Letters int            `json:"letters"`
	Older   int            `json:"older_copies"` // letters that were parked again since
	Foreign int            `json:"foreign"`      // records that no projector wrote
	Groups  []letterGroup  `json:"groups"`
	Newest  []letterOfList `json:"newest"`

	now time.Time // ages are at
}

type letterGroup struct {
	Projection string         `json:"projection"`
	Class      string         `json:"class"`
	Column     string         `json:"column"`
	Count      int            `json:"count"`
	Replayed   int            `json:"replayed"`
	Ages       map[string]int `json:"ages"`
	Oldest     time.Time      `json:"oldest_at"`
	Newest     time.Time      `json:"newest_at"`
	Sample     string         `json:"sample"`
}

// ageNames are the columns for deadletter.Group's ages.
var ageNames = [4]string{"<1h", "<1d", "<7d", "older"}

func letterGroups(groups []deadletter.Group) []letterGroup {
	all := make([]letterGroup, len(groups))
	for i, g := range groups {
		ages := map[string]int{}
		for k, n := range g.Ages {
			ages[ageNames[k]] = n
		}
		all[i] = letterGroup{g.Projection, g.Class, g.Column, g.Count, g.Replayed, ages, g.Oldest.UTC(), g.Newest.UTC(), g.Sample}
	}
	return all
}

// letterOfList is one letter.
type letterOfList struct {
	Place      string    `json:"place"` // for deadletter show
	Parked     time.Time `json:"parked_at"`
	Projection string    `json:"projection"`
	Class      string    `json:"class"`
	Column     string    `json:"column"`
	Key        string    `json:"key"`
	Replays    int       `json:"replays"`
	Event      string    `json:"event"`                     // where it was read first
	EventTime  string    `json:"event_timestamp,omitempty"` // tells events at one place apart, as in a topic that was created anew
	Reason     string    `json:"reason"`

	partition int32
	offset    int64
}

// pinged returns once a broker has answered: other questions try for much longer than somebody waits for a first word,
// and do not name the brokers.
func pinged(ctx context.Context, admin *kafka.Admin) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return admin.Ping(ctx)
}

// letterReader makes a reader of dead letters, once a broker has answered.
func (p *program) letterReader(ctx context.Context, cfg *config.Config) (*deadletter.Reader, error) {
	if err := cfg.CheckFiles(); err != nil {
		return nil, err
	}
	opts, err := cfg.KafkaClient().Options(p.logger())
	if err != nil {
		return nil, err
	}
	admin, err := kafka.NewAdmin(opts...)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	if err := pinged(ctx, admin); err != nil {
		return nil, err
	}
	return deadletter.NewReader(cfg.Letters(), opts...)
}

func (c deadletterList) Run(ctx context.Context, p *program) error {
	cfg, err := p.load()
	if err != nil {
		return err
	}
	now := time.Now()
	selection, err := c.selection(now)
	if err != nil {
		return err
	}
	if c.Max < 0 {
		return usageError{errors.New("--max cannot be negative"), "projector deadletter list"}
	}
	sources, err := letterSources(cfg, c.Topic)
	if err != nil {
		return err
	}
	reader, err := p.letterReader(ctx, cfg)
	if err != nil {
		return err
	}
	defer reader.Close()
	var all []*letterTopic
	letters := 0
	for _, source := range sources {
		l := &letterListing{now: now, selection: selection, max: c.Max, newest: map[letterPlace]*listedLetter{}}
		t, err := l.topic(ctx, reader, source)
		if errors.Is(err, kafka.ErrUnknownTopic) { // nothing was ever parked
			t, err = &letterTopic{Topic: reader.Topic(source), Source: source, Groups: []letterGroup{}, Newest: []letterOfList{}}, nil
		}
		if err != nil {
			return err
		}
		all, letters = append(all, t), letters+t.Letters
	}
	if err := c.checkColumns(cfg); letters == 0 && err != nil {
		return err
	}
	if c.json() {
		return printJSON(p.stdout, all)
	}
	return printEach(p.stdout, all)
}

// letterSources are the topics whose letters are looked at: those that are
// named, by their own name or that of their letters, or all of them.
func letterSources(cfg *config.Config, named []string) ([]string, error) {
	var all, chosen []string
	for i := range cfg.Projections {
		all = append(all, cfg.Projections[i].Topics...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	for _, n := range named {
		source := strings.TrimSuffix(n, cfg.DeadLetter.Suffix)
		switch {
		case slices.Contains(all, n):
			source = n
		case !slices.Contains(all, source):
			return nil, usageError{fmt.Errorf("no projection reads the topic %s; use one of %s", source, strings.Join(all, ", ")), ""}
		}
		if !slices.Contains(chosen, source) {
			chosen = append(chosen, source)
		}
	}
	if len(named) == 0 {
		return all, nil
	}
	return chosen, nil
}
