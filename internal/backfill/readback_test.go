package backfill_test

import (
	"testing"

	"github.com/chprojector/projector/internal/backfill"
)

// What merges away between the insert and the reading back is looked up by its
// record and version.
func TestReadBackOfMergedRows(t *testing.T) {
	w := plainWorld(t)
	w.shards[0].Exec(t, "INSERT INTO results SELECT 1, seq, 1, 'a', 2 FROM seq_1_to_5000")
	w.db.Exec(t, "INSERT INTO results_g1 (campaign, id, value, note, version, is_deleted, _generation) SELECT 1, number, 1, 'b', 3, false, 1 FROM numbers(1, 4000)")
	got, err := w.copyMerging("1")
	if err != nil || got.Written != 5000 || got.Superseded != 4000 || got.Stored != 1000 {
		t.Errorf("%+v: %v", got, err)
	}
}

// Where a record may change its campaign, the version that replaces its row may
// be in another one.
func TestReadBackOfARecordThatMoved(t *testing.T) {
	w := plainWorld(t)
	w.cfg.Table.OrderBy = []string{"id"}
	w.db.Exec(t, "DROP TABLE results_g1")
	w.db.Exec(t, w.cfg.Table.CreateTable())
	w.shards[0].Exec(t, "INSERT INTO results VALUES (1, 1, 1, 'a', 3), (1, 2, 1, 'a', 3)")
	w.db.Exec(t, "INSERT INTO results_g1 (campaign, id, value, note, version, is_deleted, _generation) VALUES (2, 1, 1, 'moved', 5, false, 1)")
	got, err := w.copyMerging("1")
	if err != nil || got.Written != 2 || got.Superseded != 1 || got.Stored != 1 || got.Resent != 0 {
		t.Errorf("%+v: %v", got, err)
	}
}

// copyMerging copies a campaign into a table that merges everything after each
// insert, before it is read back.
func (w *world) copyMerging(campaign string) (backfill.Counts, error) {
	w.t.Helper()
	source, err := w.open()
	if err != nil {
		w.t.Fatal(err)
	}
	merging := &hooked{Inserter: w.inserter(), after: func() error {
		_, err := w.db.Query(w.t.Context(), "OPTIMIZE TABLE results_g1 FINAL")
		return err
	}}
	return backfill.Copy(w.t.Context(), source, one(campaign), backfill.NewWriter(merging, w.conn, w.cfg.Table, "backfill:x", 1))
}
