package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/chprojector/projector/chschema"
)

// Names of the tables of what comparisons found, and of the comparisons.
const (
	FindingsTable    = "projector_findings"
	ComparisonsTable = "projector_comparisons"
)

// Finding is one record that differs between the table and its source, or
// whose contents contradict each other. A sighting is a row; so is its
// resolution.
type Finding struct {
	Projection    string  `json:"projection" ch:"projection"`
	Generation    uint32  `json:"generation" ch:"generation"`
	Against       string  `json:"against" ch:"against"` // mysql, or topic; for a contradiction table or topic, wherever it is
	Campaign      string  `json:"campaign" ch:"campaign"`
	Key           string  `json:"key" ch:"key"` // the identity for programs: its canonical text, in hexadecimal
	ID            string  `json:"id" ch:"id"`   // the identity for people
	Kind          string  `json:"kind" ch:"kind"`
	SourceVersion *uint64 `json:"source_version" ch:"source_version"` // nil: the source does not have it
	TargetVersion *uint64 `json:"target_version" ch:"target_version"`
	SourceDeleted bool    `json:"source_deleted" ch:"source_deleted"`
	TargetDeleted bool    `json:"target_deleted" ch:"target_deleted"`
	Place         string  `json:"place" ch:"place"`   // the shard, or the partition
	Fields        string  `json:"fields" ch:"fields"` // what differs, as a JSON list; "" = nothing in particular
	Resolved      bool    `json:"resolved" ch:"resolved"`

	First time.Time `json:"-" ch:"first_seen"` // by the server's clock
	Last  time.Time `json:"-" ch:"last_seen"`
}

const findingColumns = "projection, generation, against, campaign, key, id, kind, source_version, target_version, " +
	"source_deleted, target_deleted, place, fields, resolved"

const findingStructure = "`projection` String, generation UInt32, against String, campaign String, key String, id String, kind String, " +
	"source_version Nullable(UInt64), target_version Nullable(UInt64), source_deleted Bool, target_deleted Bool, place String, fields String, resolved Bool"

// Comparison is one campaign compared once.
type Comparison struct {
	Projection string  `json:"projection" ch:"projection"`
	Generation uint32  `json:"generation" ch:"generation"`
	Against    string  `json:"against" ch:"against"`
	Campaign   string  `json:"campaign" ch:"campaign"`
	Level      string  `json:"level" ch:"level"`
	Verdict    string  `json:"verdict" ch:"verdict"`
	Findings   uint64  `json:"findings" ch:"findings"`
	Buckets    uint32  `json:"buckets" ch:"buckets"`
	Compared   uint32  `json:"compared" ch:"compared"`
	Next       uint32  `json:"next" ch:"next"` // the bucket with which a sample goes on
	SourceLive uint64  `json:"source_live" ch:"source_live"`
	TargetLive uint64  `json:"target_live" ch:"target_live"`
	Revision   string  `json:"revision" ch:"revision"` // of the source, by part, as JSON
	Seconds    float64 `json:"seconds" ch:"seconds"`
	Error      string  `json:"error" ch:"error"`

	At time.Time `json:"-" ch:"at"` // by the server's clock
}

const comparisonColumns = "projection, generation, against, campaign, level, verdict, findings, buckets, compared, next, " +
	"source_live, target_live, revision, seconds, error"

const comparisonStructure = "`projection` String, generation UInt32, against String, campaign String, level String, verdict String, findings UInt64, " +
	"buckets UInt32, compared UInt32, next UInt32, source_live UInt64, target_live UInt64, revision String, seconds Float64, error String"

// Findings is the record of what comparisons found.
type Findings struct {
	conn chschema.Conn
	cfg  Config
}

// OpenFindings asks and writes over conn. Nothing is sent yet.
func OpenFindings(conn chschema.Conn, cfg Config) *Findings { return &Findings{conn, cfg} }

// CreateFindings returns the statements that create the tables.
func (c Config) CreateFindings() []string {
	const at = "at DateTime64(3, 'UTC') DEFAULT now64(3), "
	return []string{
		c.Statement(FindingsTable, at+findingStructure, "projection, campaign, key, at",
			"Every sighting of a record that differs between a table and its source, and its resolution. The newest row of a record holds."),
		c.Statement(ComparisonsTable, at+comparisonStructure, "projection, campaign, at", "Every campaign that was compared, and the answer."),
	}
}

// Ensure creates the tables unless they exist.
func (f *Findings) Ensure(ctx context.Context) error {
	for i, statement := range f.cfg.CreateFindings() {
		if err := f.cfg.Ensure(ctx, f.conn, []string{FindingsTable, ComparisonsTable}[i], statement); err != nil {
			return err
		}
	}
	return nil
}

// exists reports whether anything was ever recorded: the two tables are created
// together. It is an error if this user may not see one of them.
func (f *Findings) exists(ctx context.Context) (bool, error) {
	for _, table := range []string{FindingsTable, ComparisonsTable} {
		if exists, err := f.cfg.readable(ctx, f.conn, table); err != nil || !exists {
			return false, err
		}
	}
	return true, nil
}

// Add writes sightings and resolutions.
func (f *Findings) Add(ctx context.Context, list ...Finding) error {
	if err := add(ctx, f, FindingsTable, findingColumns, findingStructure, list); err != nil {
		return fmt.Errorf("record findings: %w", err)
	}
	return nil
}

// AddComparison writes that a campaign was compared.
func (f *Findings) AddComparison(ctx context.Context, c Comparison) error {
	if err := add(ctx, f, ComparisonsTable, comparisonColumns, comparisonStructure, []Comparison{c}); err != nil {
		return fmt.Errorf("record the comparison: %w", err)
	}
	return nil
}

// statementBytes keeps a statement below the server's max_query_size of 256 KiB.
const statementBytes = 100 << 10

// add sends rows within statements, as the record of operations does: no block
// that the server could take for a repeated one.
func add[T any](ctx context.Context, f *Findings, table, columns, structure string, list []T) error {
	var lines bytes.Buffer
	flush := func() error {
		if lines.Len() == 0 {
			return nil
		}
		err := f.conn.Exec(ctx, fmt.Sprintf("INSERT INTO %s (%s) SELECT %[2]s FROM format(JSONEachRow, %s, %s) SETTINGS async_insert = 0",
			f.cfg.Qualified(table), columns, chschema.QuoteString(structure), chschema.QuoteString(lines.String())))
		lines.Reset()
		return err
	}
	for _, row := range list {
		line, err := json.Marshal(row)
		if err != nil {
			return err
		}
		if lines.Len()+len(line) > statementBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		lines.Write(line)
		lines.WriteByte('\n')
	}
	return flush()
}

// FindingsFilter selects findings. Empty fields select everything.
type FindingsFilter struct {
	Projection string
	Generation uint32
	Campaign   string
}

func (f FindingsFilter) where() string {
	list := []string{"1"}
	if f.Projection != "" {
		list = append(list, "projection = "+chschema.QuoteString(f.Projection))
	}
	if f.Generation != 0 {
		list = append(list, fmt.Sprintf("generation = %d", f.Generation))
	}
	if f.Campaign != "" {
		list = append(list, "campaign = "+chschema.QuoteString(f.Campaign))
	}
	return strings.Join(list, " AND ")
}

const findingKey = "projection, generation, against, campaign, key"

// maxUnresolved bounds what one question brings into memory.
const maxUnresolved = 100_000

// Unresolved returns the findings that no later comparison found settled, the
// newest first and 100,000 at most.
func (f *Findings) Unresolved(ctx context.Context, filter FindingsFilter) ([]Finding, error) {
	exists, err := f.exists(ctx)
	if err != nil || !exists {
		return nil, err
	}
	var list []Finding
	query := fmt.Sprintf(`SELECT %[1]s, first_seen, at AS last_seen FROM
(
    SELECT *, minIf(at, NOT resolved AND at > settled) OVER (PARTITION BY %[2]s) AS first_seen FROM
    (
        SELECT *, maxIf(at, resolved) OVER (PARTITION BY %[2]s) AS settled FROM %[3]s WHERE %[4]s
    )
    ORDER BY at DESC, resolved LIMIT 1 BY %[2]s
)
WHERE NOT resolved ORDER BY at DESC, key LIMIT %[5]d`, findingColumns, findingKey, f.cfg.Qualified(FindingsTable), filter.where(), maxUnresolved)
	if err := f.conn.Select(ctx, &list, query); err != nil {
		return nil, fmt.Errorf("read the record of findings: %w", err)
	}
	return list, nil
}

// FindingCount is how many findings of a kind are unresolved.
type FindingCount struct {
	Projection string `ch:"projection"`
	Generation uint32 `ch:"generation"`
	Kind       string `ch:"kind"`
	Count      uint64 `ch:"n"`
}

// Counts returns how many findings are unresolved, by projection, generation
// and kind.
func (f *Findings) Counts(ctx context.Context) ([]FindingCount, error) {
	exists, err := f.exists(ctx)
	if err != nil || !exists {
		return nil, err
	}
	var list []FindingCount
	query := fmt.Sprintf(`SELECT projection, generation, kind, count() AS n FROM
(
    SELECT projection, generation, kind, resolved FROM %s ORDER BY at DESC, resolved LIMIT 1 BY %s
)
WHERE NOT resolved GROUP BY projection, generation, kind ORDER BY projection, generation, kind`, f.cfg.Qualified(FindingsTable), findingKey)
	if err := f.conn.Select(ctx, &list, query); err != nil {
		return nil, fmt.Errorf("read the record of findings: %w", err)
	}
	return list, nil
}

// LastComparisons returns the newest comparison of each projection, generation
// and kind of source that came to an answer; of one campaign, if it is named.
func (f *Findings) LastComparisons(ctx context.Context, campaign string) ([]Comparison, error) {
	exists, err := f.exists(ctx)
	if err != nil || !exists {
		return nil, err
	}
	where := "verdict != 'failed'"
	if campaign != "" {
		where += " AND campaign = " + chschema.QuoteString(campaign)
	}
	var list []Comparison
	query := fmt.Sprintf("SELECT %s, at FROM %s WHERE %s ORDER BY at DESC LIMIT 1 BY projection, generation, against",
		comparisonColumns, f.cfg.Qualified(ComparisonsTable), where)
	if err := f.conn.Select(ctx, &list, query); err != nil {
		return nil, fmt.Errorf("read the record of comparisons: %w", err)
	}
	return list, nil
}

// Answered is when a projection, in one generation, was last compared with one
// kind of source and the answer was equal or different.
type Answered struct {
	Projection string    `ch:"projection"`
	Generation uint32    `ch:"generation"`
	Against    string    `ch:"against"`
	At         time.Time `ch:"at"` // by the server's clock
}

// LastAnswers returns the newest comparison with an answer of each projection,
// generation and kind of source, whatever came to none since.
func (f *Findings) LastAnswers(ctx context.Context) ([]Answered, error) {
	exists, err := f.exists(ctx)
	if err != nil || !exists {
		return nil, err
	}
	var list []Answered
	query := fmt.Sprintf("SELECT projection, generation, against, max(c.at) AS at FROM %s AS c WHERE verdict IN ('equal', 'different') GROUP BY projection, generation, against",
		f.cfg.Qualified(ComparisonsTable))
	if err := f.conn.Select(ctx, &list, query); err != nil {
		return nil, fmt.Errorf("read the record of comparisons: %w", err)
	}
	return list, nil
}
