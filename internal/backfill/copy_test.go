package backfill_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chprojector/projector/internal/backfill"
	"github.com/chprojector/projector/mapping"
	"github.com/chprojector/projector/projector"
)

const plain = `CREATE TABLE results (campaign BIGINT UNSIGNED NOT NULL, id BIGINT UNSIGNED NOT NULL PRIMARY KEY, value DECIMAL(20, 4) NOT NULL, note VARCHAR(40) NOT NULL, version BIGINT UNSIGNED NOT NULL, KEY (campaign))`

const plainDeletions = `CREATE TABLE deletions (campaign BIGINT UNSIGNED NOT NULL, id BIGINT UNSIGNED NOT NULL, version BIGINT UNSIGNED NOT NULL, KEY (campaign))`

func plainWorld(t testing.TB) *world {
	t.Helper()
	w := newWorld(t, "campaign UInt64", "id UInt64", "value Decimal(20, 4)", "note String")
	w.everywhere(plain, plainDeletions)
	return w
}

func one(campaign string) backfill.Options { return backfill.Options{Campaigns: []string{campaign}} }

func TestRowsAndDeletionsOfTwoShards(t *testing.T) {
	w := plainWorld(t)
	w.shards[0].Exec(t, "INSERT INTO results VALUES (7, 1, 2.31, 'a', 3), (7, 18446744073709551615, -0.0001, '🏃 ''\"\\\\', 18446744073709551615), (8, 4, 1, 'other', 1)",
		"INSERT INTO deletions VALUES (7, 5, 9), (7, 5, 4), (8, 6, 1)")
	w.shards[1].Exec(t, "INSERT INTO results VALUES (7, 2, 0, '', 1)", "INSERT INTO deletions VALUES (7, 1, 2)")
	got, err := w.copy("backfill:x", one("7"))
	if err != nil {
		t.Fatal(err)
	}
	want := backfill.Counts{Campaigns: 1, Rows: 3, Deletions: 3, Written: 6, ReadBack: backfill.ReadBack{Stored: 6}, Highest: "18446744073709551615"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	w.want("SELECT * FROM results_current ORDER BY id", "7\t1\t2.31\ta\t3\tfalse\n7\t2\t0\t\t1\tfalse\n7\t18446744073709551615\t-0.0001\t🏃 \\'\"\\\\\t18446744073709551615\tfalse")
	w.want("SELECT id, value, note, version, is_deleted, _topic, _partition, _origin FROM results_versions WHERE id = 5 ORDER BY version DESC LIMIT 1", "5\t0\t\t9\ttrue\ts0\t1\tbackfill:x")
}

func TestEmptyCampaignsAndAll(t *testing.T) {
	w := plainWorld(t)
	w.shards[0].Exec(t, "INSERT INTO results VALUES (10, 1, 1, '', 1), (9, 2, 1, '', 1)")
	w.shards[1].Exec(t, "INSERT INTO results VALUES (9, 3, 1, '', 1), (100, 4, 1, '', 1)")
	source, err := w.open()
	if err != nil {
		t.Fatal(err)
	}
	all, err := source.Campaigns(t.Context())
	if err != nil || !slices.Equal(all, []string{"9", "10", "100"}) {
		t.Fatalf("campaigns %q: %v", all, err)
	}
	got, err := backfill.Copy(t.Context(), source, backfill.Options{Campaigns: all, ChunkRows: 1}, w.writer("backfill:all"))
	if err != nil || got.Written != 4 || got.Campaigns != 3 || got.Stored != 4 {
		t.Errorf("%+v: %v", got, err)
	}
}

// A newer version that is there already, or comes meanwhile, stays.
func TestNewerVersionStays(t *testing.T) {
	w := plainWorld(t)
	w.shards[0].Exec(t, "INSERT INTO results VALUES (1, 1, 1, 'old', 3), (1, 2, 1, 'current', 4)", "INSERT INTO deletions VALUES (1, 3, 5)")
	w.db.Exec(t, "INSERT INTO results_g1 (campaign, id, value, note, version, is_deleted, _generation) VALUES (1, 1, 2, 'newer', 4, false, 1), (1, 2, 1, 'stale', 3, false, 1), (1, 3, 1, 'alive again', 6, false, 1)")
	if _, err := w.copy("backfill:x", one("1")); err != nil {
		t.Fatal(err)
	}
	w.want("SELECT id, note, version FROM results_current ORDER BY id", "1\tnewer\t4\n2\tcurrent\t4\n3\talive again\t6")
}

// hooked does something around each insert.
type hooked struct {
	projector.Inserter
	before func(projector.Batch) (skip bool, err error)
	after  func() error
}

func (h *hooked) Insert(ctx context.Context, b projector.Batch) error {
	if h.before != nil {
		if skip, err := h.before(b); skip || err != nil {
			return err
		}
	}
	if err := h.Inserter.Insert(ctx, b); err != nil {
		return err
	}
	if h.after != nil {
		return h.after()
	}
	return nil
}

// A block that is answered OK and dropped is noticed, and sent again under
// another token; one that is dropped for ever is an error.
func TestDroppedBlockIsNoticed(t *testing.T) {
	for _, c := range []struct {
		name   string
		drops  int
		failed bool
	}{{"once", 1, false}, {"always", 1000, true}} {
		t.Run(c.name, func(t *testing.T) {
			w := plainWorld(t)
			w.shards[0].Exec(t, "INSERT INTO results SELECT 1, seq, 1, 'a', 2 FROM seq_1_to_100")
			source, err := w.open()
			if err != nil {
				t.Fatal(err)
			}
			tokens := map[string]bool{}
			n := 0
			dropping := &hooked{Inserter: w.inserter(), before: func(b projector.Batch) (bool, error) {
				if tokens[b.Token] {
					t.Errorf("token %s twice", b.Token)
				}
				tokens[b.Token] = true
				n++
				return n <= c.drops, nil
			}}
			got, err := backfill.Copy(t.Context(), source, one("1"), backfill.NewWriter(dropping, w.conn, w.cfg.Table, "backfill:x", 1))
			if (err != nil) != c.failed || c.failed && !strings.Contains(err.Error(), "id=1, version 2") {
				t.Fatalf("%v", err)
			}
			if !c.failed && (got.Resent != 1 || got.Stored != 100) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// Rows and deletions take turns, so another chunk may own numbers between those
// of this one: they stand for none of its rows.
func TestRowsOfAnotherChunkProveNothing(t *testing.T) {
	w := plainWorld(t)
	plan, err := mapping.Compile(w.cfg.Spec)
	if err != nil {
		t.Fatal(err)
	}
	drop := false
	dropping := &hooked{Inserter: w.inserter(), before: func(projector.Batch) (bool, error) { return drop, nil }}
	writer := backfill.NewWriter(dropping, w.conn, w.cfg.Table, "backfill:x", 1)
	write := func(sequences ...int64) error {
		rows := plan.NewRows()
		for _, n := range sequences {
			event := fmt.Sprintf(`{"campaign": 1, "id": %d, "value": 1, "note": "", "version": 1, "is_deleted": false}`, n)
			if err := plan.Append(rows, []byte(event), writer.Lineage("s0", n)); err != nil {
				t.Fatal(err)
			}
		}
		_, err := writer.Write(t.Context(), rows, backfill.Span{}, func(int, error) {})
		return err
	}
	if err := write(2, 3); err != nil {
		t.Fatal(err)
	}
	drop = true
	if err := write(1, 4); err == nil || !strings.Contains(err.Error(), "does not have row id=1") {
		t.Errorf("two rows were dropped: %v", err)
	}
}

// TestIdenticalBlockAfterABadOne: the same rows again, after others have
// replaced them, must be what readers see, although the server remembers blocks.
func TestIdenticalBlockAfterABadOne(t *testing.T) {
	w := plainWorld(t)
	w.shards[0].Exec(t, "INSERT INTO results VALUES (1, 1, 2.31, 'good', 3)")
	if _, err := w.copy("backfill:x", one("1")); err != nil {
		t.Fatal(err)
	}
	w.db.Exec(t, "INSERT INTO results_g1 (campaign, id, value, note, version, is_deleted, _generation) VALUES (1, 1, 9.99, 'bad', 3, false, 1)")
	w.want("SELECT note FROM results_current", "bad")
	// Origin, run and sequence are equal too, so that the blocks are, byte for byte.
	got, err := w.copy("backfill:x", one("1"))
	if err != nil || got.Resent != 0 {
		t.Fatalf("%+v: %v", got, err)
	}
	w.want("SELECT note, value FROM results_current", "good\t2.31")
	w.want("SELECT getSetting('insert_deduplicate'), value FROM system.merge_tree_settings WHERE name = 'non_replicated_deduplication_window'", "true\t0")
	w.want("SELECT engine_full LIKE '%non_replicated_deduplication_window = 1000%' FROM system.tables WHERE database = currentDatabase() AND name = 'results_g1'", "1")
}

func TestRefusedRowsDoNotHoldUpTheOthers(t *testing.T) {
	w := newWorld(t, "campaign UInt64", "id UInt64", "value Decimal(10, 2)", "note String")
	w.everywhere(plain, plainDeletions)
	w.shards[0].Exec(t, "INSERT INTO results SELECT 1, seq, IF(seq = 500, 1.2345, 1), '', 2 FROM seq_1_to_1000")
	w.db.Exec(t, "ALTER TABLE results_g1 ADD CONSTRAINT no_thirteen CHECK id != 13")
	got, err := w.copy("backfill:x", backfill.Options{Campaigns: []string{"1"}, ChunkRows: 300})
	if err != nil {
		t.Fatal(err)
	}
	if got.Rows != 1000 || got.Written != 998 || got.Refused != 2 || got.Stored != 998 {
		t.Errorf("%+v", got)
	}
	if d := cmp.Diff([]string{"500 precision value 1.2345", "id=13 rejected  "}, summary(got.Refusals)); d != "" {
		t.Error(d)
	}
	w.want("SELECT count() FROM results_current", "998")
}

func summary(list []backfill.Refusal) (lines []string) {
	for _, r := range list {
		lines = append(lines, fmt.Sprintf("%s %s %s %s", r.Key, r.Class, r.Column, r.Value))
	}
	slices.Sort(lines)
	return lines
}

func TestSameRecordOnTwoShards(t *testing.T) {
	w := plainWorld(t)
	w.shards[0].Exec(t, "INSERT INTO results VALUES (1, 1, 1, 'a', 1), (1, 5, 1, 'a', 1), (1, 9, 1, 'a', 1)")
	w.shards[1].Exec(t, "INSERT INTO results VALUES (1, 2, 1, 'b', 1), (1, 5, 1, 'b', 2), (1, 8, 1, 'b', 1)")
	got, err := w.copy("backfill:x", backfill.Options{Campaigns: []string{"1"}, ChunkRows: 1})
	if err != nil || got.Repeated != 2 || got.Written != 4 || len(got.Refusals) != 2 || got.Refusals[1].Shard != "s1" || got.Refusals[1].Key != "5" {
		t.Errorf("%+v: %v", got, err)
	}
	w.want("SELECT groupArray(id) FROM (SELECT id FROM results_current ORDER BY id)", "[1,2,8,9]")
}

func TestWrongMappingWritesNothing(t *testing.T) {
	w := newWorld(t, "campaign UInt64", "id UInt64", "value Decimal(20, 4)", "note Date")
	w.everywhere(plain, plainDeletions)
	w.shards[0].Exec(t, "INSERT INTO results SELECT 1, seq, 1, 'x', 2 FROM seq_1_to_1000")
	_, err := w.copy("backfill:x", one("1"))
	if err == nil || !strings.Contains(err.Error(), "the mapping or the query is wrong, and nothing was written") || !strings.Contains(err.Error(), "column note") {
		t.Error(err)
	}
	w.want("SELECT count() FROM results_g1", "0")
}

func TestRateIsKept(t *testing.T) {
	w := plainWorld(t)
	w.shards[0].Exec(t, "INSERT INTO results SELECT 1, seq, 1, 'x', 2 FROM seq_1_to_300")
	var sizes []int
	sizing := &hooked{Inserter: w.inserter(), before: func(b projector.Batch) (bool, error) {
		sizes = append(sizes, b.To-b.From)
		return false, nil
	}}
	source, err := w.open()
	if err != nil {
		t.Fatal(err)
	}
	_, err = backfill.Copy(t.Context(), source, backfill.Options{Campaigns: []string{"1"}, Rate: 100}, backfill.NewWriter(sizing, w.conn, w.cfg.Table, "backfill:x", 1))
	if err != nil || !slices.Equal(sizes, []int{100, 100, 100}) {
		t.Errorf("inserts of %v rows: %v", sizes, err)
	}
	w.want("SELECT dateDiff('millisecond', min(_ingested_at), max(_ingested_at)) > 1800 FROM results_g1", "1")
}

// Interrupted after any chunk, another Copy goes on there, and nothing is left
// out or counted twice.
func TestGoesOnFromEveryCheckpoint(t *testing.T) {
	w := plainWorld(t)
	for i, s := range w.shards {
		s.Exec(t, fmt.Sprintf("INSERT INTO results SELECT seq %% 3, seq * 2 + %d, 1, 'x', 2 FROM seq_1_to_20", i),
			fmt.Sprintf("INSERT INTO deletions SELECT seq %% 3, seq * 2 + %d + 1000, 3 FROM seq_1_to_8", i))
	}
	campaigns := []string{"0", "1", "2"}
	var points []backfill.Checkpoint
	whole, err := w.copy("backfill:whole", backfill.Options{Campaigns: campaigns, ChunkRows: 7, Save: func(_ context.Context, c backfill.Checkpoint) error {
		points = append(points, c)
		return nil
	}})
	if err != nil || whole.Written != 56 || !points[len(points)-1].Done {
		t.Fatalf("%+v: %v", whole, err)
	}
	if again, err := w.copy("backfill:done", backfill.Options{Campaigns: campaigns, From: points[len(points)-1]}); err != nil || cmp.Diff(whole, again) != "" {
		t.Errorf("from its end: %+v: %v", again, err)
	}
	stop := errors.New("stop")
	for n := range points {
		w.db.Exec(t, "TRUNCATE TABLE results_g1")
		origin, saved := fmt.Sprintf("backfill:%d", n), 0
		var at backfill.Checkpoint
		_, err := w.copy(origin, backfill.Options{Campaigns: campaigns, ChunkRows: 7, Save: func(_ context.Context, c backfill.Checkpoint) error {
			if saved++; saved > n {
				return stop
			}
			at = c
			return nil
		}})
		if !errors.Is(err, stop) {
			t.Fatal(err)
		}
		got, err := w.copy(origin, backfill.Options{Campaigns: campaigns, ChunkRows: 11, From: at})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(whole, got); d != "" {
			t.Errorf("from checkpoint %d: %s", n, d)
		}
		w.want("SELECT uniqExact(id), countIf(is_deleted) >= 16 FROM results_g1", "56\t1")
	}
}

// Of two writers the second may be done first. No checkpoint passes a chunk that
// is not in the table.
func TestCheckpointsFollowTheOrderOfReading(t *testing.T) {
	broken := &projector.InsertError{Class: projector.Fatal, Err: errors.New("broken")}
	for name, fault := range map[string]error{"the first is stored last": nil, "the first is lost": broken} {
		t.Run(name, func(t *testing.T) {
			w := plainWorld(t)
			w.shards[0].Exec(t, "INSERT INTO results SELECT 1, seq, 1, '', 2 FROM seq_1_to_40")
			source, err := w.open()
			if err != nil {
				t.Fatal(err)
			}
			second := make(chan struct{})
			ordered := func() *backfill.Writer {
				var at int64
				return backfill.NewWriter(&hooked{
					Inserter: w.inserter(),
					before: func(b projector.Batch) (bool, error) {
						if at = b.Rows.Lineage(b.From).Offset; at > 0 {
							return false, nil
						}
						<-second
						return false, fault
					},
					after: func() error {
						if at == 10 {
							close(second)
						}
						return nil
					},
				}, w.conn, w.cfg.Table, "backfill:x", 1)
			}
			var saved []int64
			got, err := backfill.Copy(t.Context(), source, backfill.Options{Campaigns: []string{"1"}, ChunkRows: 10, Save: func(_ context.Context, c backfill.Checkpoint) error {
				saved = append(saved, c.Sequence)
				if c.Counts.Written != c.Sequence {
					t.Errorf("%d of %d rows are written at the checkpoint", c.Counts.Written, c.Sequence)
				}
				return nil
			}}, ordered(), ordered())
			if !errors.Is(err, fault) || fault != nil && (saved != nil || got.Written != 0) || fault == nil && !slices.Equal(saved, []int64{10, 20, 30, 40, 40}) {
				t.Errorf("saved %d, %+v: %v", saved, got, err)
			}
			w.want("SELECT count() >= 10, countIf(id = 11) FROM results_g1", "1\t1")
		})
	}
}

func TestDryRunWritesNothing(t *testing.T) {
	w := newWorld(t, "campaign UInt64", "id UInt64", "value Decimal(10, 2)", "note String")
	w.everywhere(plain, plainDeletions)
	w.shards[0].Exec(t, "INSERT INTO results SELECT 1, seq, IF(seq = 500, 1.2345, 1), '', 2 FROM seq_1_to_1000", "INSERT INTO deletions VALUES (1, 2000, 1)")
	source, err := w.open()
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	got, err := backfill.Map(t.Context(), source, one("1"), 2, func(campaign string, phase backfill.Phase, rows *mapping.Rows) {
		seen = append(seen, fmt.Sprint(campaign, " ", phase, " ", rows.Len(), " ", rows.Identity(0)))
	})
	if err != nil || got.Rows != 1000 || got.Deletions != 1 || got.Refused != 1 || got.Written != 1000 {
		t.Errorf("%+v: %v", got, err)
	}
	if !slices.Equal(seen, []string{"1 rows 2 id=1", "1 deletions 1 id=2000"}) {
		t.Errorf("samples %q", seen)
	}
	w.want("SELECT count() FROM results_g1", "0")
}
