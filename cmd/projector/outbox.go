package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/chprojector/projector/internal/config"
	"github.com/chprojector/projector/internal/mysql"
	"github.com/chprojector/projector/internal/outbox"
)

type outboxCommand struct {
	DDL    outboxDDL    `cmd:"" name:"ddl" help:"Print the table of the transactional outbox, or its grants."`
	List   outboxList   `cmd:"" help:"Show parked, due or claimed events."`
	Replay outboxReplay `cmd:"" help:"Make parked events due again."`
}

type outboxDDL struct {
	Grants bool   `help:"Print the least rights of the relay's user instead."`
	User   string `help:"The relay's user in MySQL, for --grants: NAME or NAME@HOST (default projector)." placeholder:"USER"`
}

func (outboxDDL) Help() string {
	return `Prints the statement that creates the outbox, for MariaDB 10.6 or later and MySQL 8.0.1
or later, under the name outbox.table. Nothing is connected. Create it in the same
database as the records whose events it takes, on every shard: an event and its change
must commit together.

Examples:

    projector outbox ddl
    projector outbox ddl | mysql app
    projector outbox ddl --grants --user relay@10.0.0.%`
}

func (c outboxDDL) Run(p *program) error {
	cfg, err := p.load()
	if err != nil {
		return err
	}
	if c.User != "" && !c.Grants {
		return usageError{errors.New("--user is for --grants"), "projector outbox ddl"}
	}
	table := cfg.Outbox.Table
	if c.Grants {
		fmt.Fprintln(p.stdout, "-- projector relay, outbox list and outbox replay; in the database of the table")
		for _, statement := range outbox.Grants(table, cmp.Or(c.User, "projector"), cfg.Relay().Heartbeat.Interval > 0) {
			fmt.Fprintf(p.stdout, "%s;\n", statement)
		}
		return nil
	}
	_, err = fmt.Fprintf(p.stdout, `-- MariaDB 10.6 and MySQL 8.0.13 or later. MySQL 8.0.1 to 8.0.12 knows no DEFAULT (…):
-- leave both out there, and let the application insert UTC_TIMESTAMP(6) into
-- created_at and due_at.
%s;
`, outbox.DDL(table))
	return err
}

// eventFilter are the flags that choose events.
type eventFilter struct {
	onShards
	Type        string        `help:"Only events of this aggregate type." placeholder:"TYPE"`
	Aggregate   string        `help:"Only events of this aggregate, by its id." placeholder:"ID"`
	Error       string        `help:"Only events whose last error contains this text." placeholder:"TEXT"`
	OlderThan   time.Duration `help:"Only events that have been in their state for so long." placeholder:"DURATION"`
	YoungerThan time.Duration `help:"Only events that have been in their state for no longer." placeholder:"DURATION"`
}

func (f eventFilter) filter(state string) outbox.Filter {
	return outbox.Filter{State: state, Type: f.Type, Aggregate: f.Aggregate, Error: f.Error, OlderThan: f.OlderThan, YoungerThan: f.YoungerThan}
}

// stores opens and probes the outboxes of the chosen shards. What cannot be
// reached is told apart from what was.
func (f eventFilter) stores(ctx context.Context, cfg *config.Config, each func(mysql.Shard, *outbox.Store) error) error {
	if f.OlderThan < 0 || f.YoungerThan < 0 {
		return usageError{errors.New("--older-than and --younger-than cannot be negative"), ""}
	}
	if err := cfg.CheckRelay(false); err != nil {
		return err
	}
	shards, err := f.shards(cfg)
	if err != nil {
		return err
	}
	var failed []error
	for _, shard := range shards {
		failed = append(failed, func() error {
			db, err := shard.Open(1)
			if err != nil {
				return err
			}
			defer db.Close()
			store := outbox.NewStore(shard.Name, db, cfg.Outbox.Table, owner(), false)
			if err := store.Probe(ctx); err != nil {
				return err
			}
			return each(shard, store)
		}())
	}
	return errors.Join(failed...)
}

type outboxList struct {
	eventFilter
	output
	State string `help:"Events in this state: parked, due, claimed, sent or superseded." enum:"parked,due,claimed,sent,superseded" default:"parked" placeholder:"STATE"`
	By    string `help:"Count instead of listing, by error, type or aggregate." enum:",error,type,aggregate" default:"" placeholder:"WHAT"`
	Limit int    `help:"So many of each shard at most, the longest in their state first." default:"100" placeholder:"N"`
}

func (outboxList) Help() string {
	return `Shows events of the outbox without their payloads, the longest in their state first. It
reads only and locks nothing. A shard that cannot be reached is named on stderr; the exit
code is then 1.

AGE is since the event was written. SINCE is since it is in its state; for due and
claimed events, when they are due and when their claim ends.

Examples:

    projector outbox list
    projector outbox list --by error
    projector outbox list --state due --older-than 10m --shard s1
    projector outbox list --type fitness_result --aggregate 4711 -o json`
}

func (c outboxList) Run(ctx context.Context, p *program) error {
	cfg, err := p.load()
	if err != nil {
		return err
	}
	if c.Limit < 1 {
		return usageError{errors.New("--limit must be at least 1"), "projector outbox list"}
	}
	events, kinds := []outbox.Event{}, []outbox.Kind{}
	failed := c.stores(ctx, cfg, func(_ mysql.Shard, s *outbox.Store) error {
		if c.By != "" {
			some, err := s.Group(ctx, c.filter(c.State), c.By, c.Limit)
			kinds = append(kinds, some...)
			return err
		}
		some, err := s.List(ctx, c.filter(c.State), c.Limit)
		events = append(events, some...)
		return err
	})
	switch {
	case c.json() && c.By != "":
		err = printJSON(p.stdout, kinds)
	case c.json():
		err = printJSON(p.stdout, events)
	case failed != nil && len(events)+len(kinds) == 0: // "no events" would be a claim
	case c.By != "":
		err = printKinds(p.stdout, kinds, c.By)
	default:
		err = printEvents(p.stdout, events, c.State)
	}
	return errors.Join(failed, err)
}

func printEvents(w io.Writer, events []outbox.Event, state string) error {
	if len(events) == 0 {
		_, err := fmt.Fprintf(w, "no %s events\n", state)
		return err
	}
	t, now := newTable(w, "SHARD", "ID", "TYPE", "AGGREGATE", "VERSION", "ATTEMPTS", "BYTES", "AGE", "SINCE", "ERROR"), time.Now()
	for _, e := range events {
		since := now.Sub(e.DueAt)
		text := age(since)
		if since < 0 {
			text = "in " + age(-since)
		}
		t.row(e.Shard, strconv.FormatUint(e.ID, 10), e.Type, e.Aggregate, strconv.FormatUint(e.Version, 10), strconv.Itoa(e.Attempts),
			strconv.FormatInt(e.Bytes, 10), age(time.Duration(e.Age*float64(time.Second))), text, cut(e.Error, 100))
	}
	return t.flush()
}

func printKinds(w io.Writer, kinds []outbox.Kind, by string) error {
	t := newTable(w, "SHARD", "EVENTS", "OLDEST", "NEWEST", strings.ToUpper(by))
	for _, k := range kinds {
		t.row(k.Shard, strconv.FormatInt(k.Events, 10), age(time.Since(k.Oldest))+" ago", age(time.Since(k.Newest))+" ago", cut(k.Value, 200))
	}
	return t.flush()
}

// age is a duration as people say it: 4s, 12m, 3h20m, 5d.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}
