package rebuild

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/internal/contract"
)

// Difference is how the current records of a campaign in one generation differ
// from those in another. It says what readers will see change, not which of the
// two is right.
type Difference struct {
	Campaign string            `json:"campaign,omitempty"` // "" = of all
	Old      uint64            `json:"old"`                // current records
	New      uint64            `json:"new"`
	Added    uint64            `json:"added"`    // records of the new generation alone
	Removed  uint64            `json:"removed"`  // of the old one alone
	Versions uint64            `json:"versions"` // in both, at another version
	Contents uint64            `json:"contents"` // in both, at one version with another content
	Columns  map[string]uint64 `json:"columns"`  // of Contents, by column
}

// Add adds what was found of another campaign.
func (d *Difference) Add(o Difference) {
	d.Old, d.New, d.Added, d.Removed = d.Old+o.Old, d.New+o.New, d.Added+o.Added, d.Removed+o.Removed
	d.Versions, d.Contents = d.Versions+o.Versions, d.Contents+o.Contents
	for column, n := range o.Columns {
		if d.Columns == nil {
			d.Columns = map[string]uint64{}
		}
		d.Columns[column] += n
	}
}

// Differ asks how the new table's records of a campaign differ from the old
// one's. common are the columns that both have; two values are the same if
// their texts are.
func Differ(ctx context.Context, conn chschema.Conn, older, newer chschema.Table, common []string, campaign string) (Difference, error) {
	columns := slices.DeleteFunc(slices.Clone(common), func(c string) bool { return slices.Contains(newer.Identity, c) || c == newer.Version })
	var rows []struct {
		Old      uint64   `ch:"old"`
		New      uint64   `ch:"new"`
		Added    uint64   `ch:"added"`
		Removed  uint64   `ch:"removed"`
		Versions uint64   `ch:"versions"`
		Contents uint64   `ch:"contents"`
		Columns  []uint64 `ch:"columns"`
	}
	query := fmt.Sprintf(`SELECT countIf(o > 0) AS old, countIf(n > 0) AS new, countIf(o = 0) AS added, countIf(n = 0) AS removed,
  countIf(o > 0 AND n > 0 AND ov != nv) AS versions, countIf(o > 0 AND n > 0 AND ov = nv AND oh != nh) AS contents,
  sumForEachIf(arrayMap((a, b) -> toUInt64(a != b), arrayResize(oh, %d), arrayResize(nh, %[1]d)), o > 0 AND n > 0 AND ov = nv) AS columns
FROM (
  SELECT countIf(g = 1) AS o, countIf(g = 2) AS n, maxIf(v, g = 1) AS ov, maxIf(v, g = 2) AS nv, anyIf(h, g = 1) AS oh, anyIf(h, g = 2) AS nh
  FROM (%s UNION ALL %s)
  GROUP BY id
) SETTINGS %s`, len(columns), side(older, 1, columns, campaign), side(newer, 2, columns, campaign), contract.FinalSettings)
	if err := conn.Select(ctx, &rows, query); err != nil {
		return Difference{}, fmt.Errorf("compare campaign %s of %s with %s: %w", campaign, older.Physical(), newer.Physical(), err)
	}
	r := rows[0]
	d := Difference{Campaign: campaign, Old: r.Old, New: r.New, Added: r.Added, Removed: r.Removed, Versions: r.Versions, Contents: r.Contents, Columns: map[string]uint64{}}
	for i, n := range r.Columns {
		if n > 0 {
			d.Columns[columns[i]] = n
		}
	}
	return d, nil
}

// side selects the current records of one generation: identity, version, and a
// hash of each column.
func side(t chschema.Table, number int, columns []string, campaign string) string {
	hashes := make([]string, len(columns))
	for i, c := range columns {
		hashes[i] = fmt.Sprintf("sipHash64(ifNull(toString(%s), '\\0null'))", chschema.QuoteName(c))
	}
	where := fmt.Sprintf("toString(%s) = %s", chschema.QuoteName(t.Campaign), chschema.QuoteString(campaign))
	if column, ok := t.Column(t.Campaign); ok && column.Type.Kind.IsInteger() {
		where = chschema.QuoteName(t.Campaign) + " = " + chschema.QuoteString(campaign) // so that the sorting key can be used
	}
	if t.Deleted != "" {
		where += fmt.Sprintf(" AND %s = 0", chschema.QuoteName(t.Deleted))
	}
	ids := make([]string, len(t.Identity))
	for i, c := range t.Identity {
		ids[i] = "toString(" + chschema.QuoteName(c) + ")"
	}
	return fmt.Sprintf("SELECT [%s] AS id, toUInt64(%s) AS v, CAST([%s], 'Array(UInt64)') AS h, %d AS g FROM %s FINAL WHERE %s",
		strings.Join(ids, ", "), chschema.QuoteName(t.Version), strings.Join(hashes, ", "), number, t.Qualified(t.Physical()), where)
}

// Generation is a table of the projection that exists.
type Generation struct {
	Number uint32 `json:"generation"`
	Table  string `json:"table"`
	Rows   uint64 `json:"rows"` // physical ones: a record may have several
}

// Generations lists the tables that exist for t, whatever their generation, in
// its order.
func Generations(ctx context.Context, conn chschema.Conn, t chschema.Table) ([]Generation, error) {
	var rows []struct {
		Name   string `ch:"name"`
		Number uint32 `ch:"number"`
		Rows   uint64 `ch:"total"`
	}
	prefix := t.Name + "_g"
	query := fmt.Sprintf(`SELECT name, toUInt32(substring(name, %d)) AS number, toUInt64(ifNull(total_rows, 0)) AS total FROM system.tables
WHERE database = %s AND startsWith(name, %s) AND match(substring(name, %[1]d), '^[1-9][0-9]{0,8}$') AND engine LIKE '%%ReplacingMergeTree'
ORDER BY number`, len(prefix)+1, chschema.QuoteString(t.Database), chschema.QuoteString(prefix))
	if err := conn.Select(ctx, &rows, query); err != nil {
		return nil, fmt.Errorf("list the generations of %s: %w", t.Name, err)
	}
	list := make([]Generation, len(rows))
	for i, r := range rows {
		list[i] = Generation{r.Number, r.Name, r.Rows}
	}
	return list, nil
}

// Readers lists the views, of whatever database, that read one of these tables
// of t, as "view reads table". It knows of those that the user may see.
func Readers(ctx context.Context, conn chschema.Conn, t chschema.Table, list []Generation) ([]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	tables := make([]string, len(list))
	for i, g := range list {
		tables[i] = regexp.QuoteMeta(g.Table)
	}
	var rows []struct {
		View  string `ch:"view"`
		Query string `ch:"query"`
	}
	// The server stores the tables of a query with their databases.
	rule := regexp.MustCompile("(?:^|[^\\w`])`?" + regexp.QuoteMeta(t.Database) + "`?\\.`?(" + strings.Join(tables, "|") + ")(?:\\W|$)")
	query := fmt.Sprintf("SELECT concat(database, '.', name) AS view, as_select AS query FROM system.tables WHERE engine = 'View' AND position(as_select, %s) > 0 ORDER BY view",
		chschema.QuoteString(t.Name+"_g"))
	if err := conn.Select(ctx, &rows, query); err != nil {
		return nil, fmt.Errorf("look for views that read %s: %w", list[0].Table, err)
	}
	var views []string
	for _, r := range rows {
		if m := rule.FindStringSubmatch(r.Query); m != nil {
			views = append(views, r.View+" reads "+m[1])
		}
	}
	return views, nil
}

// Common returns the names of the new table's columns that the old one has too.
func Common(ctx context.Context, conn chschema.Conn, older, newer chschema.Table) ([]string, error) {
	var rows []struct {
		Name string `ch:"name"`
	}
	query := fmt.Sprintf("SELECT name FROM system.columns WHERE database = %s AND table = %s", chschema.QuoteString(older.Database), chschema.QuoteString(older.Physical()))
	if err := conn.Select(ctx, &rows, query); err != nil {
		return nil, fmt.Errorf("list the columns of %s: %w", older.Physical(), err)
	}
	have := map[string]bool{}
	for _, r := range rows {
		have[r.Name] = true
	}
	for _, needed := range append(slices.Clone(older.Identity), older.Version, older.Campaign, older.Deleted) {
		if needed != "" && !have[needed] {
			return nil, nil // another design: its records cannot be told by this one's columns
		}
	}
	var common []string
	for _, c := range newer.Columns {
		if have[c.Name] {
			common = append(common, c.Name)
		}
	}
	return common, nil
}
