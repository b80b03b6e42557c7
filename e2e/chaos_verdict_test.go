package e2e

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/chprojector/projector/internal/fitness"
)

// verdict is what is wrong at the end of a schedule. It fails with an error only if the servers do not answer.
type verdict struct {
	lost, invented, wrong []string
	again                 int // rows that were inserted again, and are there more than once
}

// judge looks at everything that the servers hold and compares it with what was produced.
func (r *run) judge(ctx context.Context) (v verdict, err error) {
	if err := r.judgeLetters(ctx, &v); err != nil {
		return v, err
	}
	if err := r.judgeRows(ctx, &v); err != nil {
		return v, err
	}
	if err := r.judgeCommits(ctx, &v); err != nil {
		return v, err
	}
	if err := r.judgeView(ctx, &v); err != nil {
		return v, err
	}
	if r.optimize && len(v.wrong) == 0 {
		if _, err := r.ask(ctx, "OPTIMIZE TABLE fitness_results_g1 FINAL"); err != nil {
			return v, err
		}
		if err := r.judgeView(ctx, &v); err != nil {
			return v, err
		}
	}
	return v, nil
}

// judgeRows holds the table, in which nothing was merged yet, against what was produced at each place.
func (r *run) judgeRows(ctx context.Context, v *verdict) error {
	out, err := r.ask(ctx, "SELECT _partition, _offset, data_id, version, is_deleted, count() FROM fitness_results_g1 WHERE _topic = '"+r.w.topic+"' GROUP BY ALL")
	if err != nil {
		return err
	}
	stored := map[place]bool{}
	for line := range strings.Lines(out) {
		cell := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		var at place
		var times int
		if _, err := fmt.Sscan(cell[0]+" "+cell[1]+" "+cell[len(cell)-1], &at.partition, &at.offset, &times); err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
		if stored[at] {
			v.invented = append(v.invented, fmt.Sprintf("the table holds two different rows of %v", at))
		}
		stored[at] = true
		v.again += times - 1
		i, known := r.load.events[at]
		if !known {
			v.invented = append(v.invented, fmt.Sprintf("the table holds a row of %v, where no event was produced", at))
			continue
		}
		e := r.load.g.At(i)
		if want := fmt.Sprint(e.DataID, e.Version, e.IsDeleted); strings.Join(cell[2:5], " ") != want {
			v.invented = append(v.invented, fmt.Sprintf("the row of %v is %v, the event (id, version, deleted) was %s", at, cell[2:5], want))
		}
	}
	for _, at := range inOrder(r.load.events) {
		if !stored[at] {
			v.lost = append(v.lost, fmt.Sprintf("the event at %v is no row", at))
		}
	}
	return nil
}

// judgeLetters holds that every poison message is parked as it was, and nothing else is.
func (r *run) judgeLetters(ctx context.Context, v *verdict) error {
	r.seen.mu.Lock()
	defer r.seen.mu.Unlock()
	letters := r.seen.letters
	if err := again(ctx, func() error { return letters.read(ctx) }); err != nil {
		return err
	}
	v.invented = append(v.invented, letters.bad...)
	for _, at := range inOrder(letters.all) {
		poison, known := r.load.parked[at]
		for _, l := range letters.all[at] {
			switch {
			case !known:
				v.invented = append(v.invented, fmt.Sprintf("the letter of %v is no poison: %s, column %q: %s", at, l.Class, l.Column, l.Error))
			case l.Class != poison.Class || l.Column != poison.Column || !bytes.Equal(l.Value, poison.Value) || (l.Value == nil) != (poison.Value == nil):
				v.wrong = append(v.wrong, fmt.Sprintf("the letter of %v (%s) has class %q, column %q and the value %.100q", at, poison.Name, l.Class, l.Column, l.Value))
			}
		}
	}
	for _, at := range inOrder(r.load.parked) {
		if len(letters.all[at]) == 0 {
			v.lost = append(v.lost, fmt.Sprintf("the poison at %v (%s) is no letter", at, r.load.parked[at].Name))
		}
	}
	return nil
}

// judgeCommits holds that nothing was committed that the gate did not see.
func (r *run) judgeCommits(ctx context.Context, v *verdict) error {
	var o offsets
	err := again(ctx, func() (err error) {
		ask, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		o, err = r.w.offsets(ask)
		return err
	})
	if err != nil {
		return err
	}
	ends := r.load.ends()
	r.seen.mu.Lock()
	defer r.seen.mu.Unlock()
	for p, at := range o.committed {
		if at > r.seen.proven[p] {
			v.wrong = append(v.wrong, fmt.Sprintf("offset %d of partition %d was committed past the check, which knows %d", at, p, r.seen.proven[p]))
		}
		if at > ends[p] {
			v.wrong = append(v.wrong, fmt.Sprintf("offset %d of partition %d was committed, its last record is at %d", at, p, ends[p]-1))
		}
	}
	return nil
}

// judgeView compares the current view with the model, row by row and field by field.
func (r *run) judgeView(ctx context.Context, v *verdict) error {
	m := r.load.model()
	var report fitness.Report
	err := again(ctx, func() (err error) {
		report, err = m.Compare(r.w.rows("SELECT " + strings.Join(fitness.Columns(), ", ") + " FROM fitness_results_current"))
		return err
	})
	if err != nil {
		return err
	}
	if err := report.Err(); err != nil {
		v.wrong = append(v.wrong, fmt.Sprintf("the view: %v", err))
	}
	if report.Rows != m.Live() || report.Rows == 0 {
		v.wrong = append(v.wrong, fmt.Sprintf("the view has %d rows, the model %d", report.Rows, m.Live()))
	}
	return nil
}

// ask is a query, again and again while the server is down.
func (r *run) ask(ctx context.Context, query string) (out string, err error) {
	err = again(ctx, func() (err error) {
		out, err = r.w.db.Query(ctx, query)
		return err
	})
	return out, err
}

// again repeats a question while a server is down, for a while.
func again(ctx context.Context, question func() error) error {
	deadline := time.Now().Add(soon)
	for {
		err := question()
		if err == nil || time.Now().After(deadline) || !wait(ctx, 200*time.Millisecond) {
			return err
		}
	}
}
