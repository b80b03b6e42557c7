package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/fitness"
	"github.com/chprojector/projector/internal/testenv"
)

// TestStatusAgrees: what `status` says is what Kafka and ClickHouse say themselves.
func TestStatusAgrees(t *testing.T) {
	t.Parallel()
	server := testenv.NewClickHouse(t, testenv.ClickHouseConfig{Databases: []string{"reporting"}})
	w := newWorld(t, setup{partitions: 3, server: server})
	w.apply()
	agrees := func(when string) status {
		t.Helper()
		all := w.status(0)
		if len(all) != 1 {
			t.Fatalf("%s: %d projections", when, len(all))
		}
		s := all[0]
		if s.Projection != "fitness_results" || s.Table != "fitness_results_g1" || s.Group != w.group || len(s.Unknown) > 0 {
			t.Errorf("%s: %+v", when, s)
		}
		o, err := w.offsets(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		stored := map[string]string{}
		for row, err := range w.rows("SELECT _partition, max(_offset) FROM fitness_results_versions GROUP BY 1") {
			if err != nil {
				t.Fatal(err)
			}
			stored[fmt.Sprint(row[0])] = fmt.Sprint(row[1])
		}
		var want, got []string
		for partition := range int32(len(o.ends)) {
			committed := "none"
			if at, ok := o.committed[partition]; ok {
				committed = fmt.Sprint(at)
			}
			newest, ok := stored[fmt.Sprint(partition)]
			if !ok {
				newest = "none"
			}
			want = append(want, fmt.Sprintf("%s/%d committed %s end %d lag %d stored %s", w.topic, partition, committed, o.ends[partition],
				o.ends[partition]-o.committed[partition], newest))
		}
		for _, p := range s.Partitions {
			got = append(got, fmt.Sprintf("%s/%d committed %s end %s lag %s stored %s", p.Topic, p.Partition, known(p.Committed), known(p.End), known(p.Lag), known(p.Stored)))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -servers +status\n%s", when, diff)
		}
		if known(s.Lag) != fmt.Sprint(o.lag()) {
			t.Errorf("%s: lag %s, Kafka says %d", when, known(s.Lag), o.lag())
		}
		classes, letters := map[string]int{}, w.letters()
		for _, l := range letters {
			classes[l.Class]++
		}
		if len(s.Letters) != 1 || s.Letters[0].Topic != w.topic+"-dlq" || s.Letters[0].Letters != int64(len(letters)) || !cmp.Equal(s.Letters[0].Classes, classes) {
			t.Errorf("%s: letters %+v; in the topic are %v", when, s.Letters, classes)
		}
		return s
	}
	if s := agrees("before anything"); s.Age != nil {
		t.Errorf("the newest row is %v s old; there is none", *s.Age)
	}
	g := events(t, 3000, 7)
	w.fill(g)
	agrees("before the first start")
	p := w.start("projector")
	w.settle()
	if s := agrees("when all is done"); s.Age == nil || *s.Age < 0 || *s.Age > 600 {
		t.Errorf("age of the newest row: %v", s.Age)
	}
	for i, poison := range fitness.Poisons() {
		w.produce(&kgo.Record{Key: fmt.Append(nil, i), Value: poison.Value})
	}
	w.settle()
	if s := agrees("with letters"); s.Letters[0].Letters != int64(len(fitness.Poisons())) {
		t.Errorf("%d letters, want %d", s.Letters[0].Letters, len(fitness.Poisons()))
	}
	p.drain()
	w.fill(events(t, 500, 8))
	if s := agrees("while it lags"); *s.Lag != 500 {
		t.Errorf("lag %d, want 500", *s.Lag)
	}

	// Without ClickHouse the rest is still told.
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	s := w.status(1)[0]
	if *s.Lag != 500 || len(s.Letters) != 1 || len(s.Unknown) != 2 || !strings.Contains(s.Unknown[0], "connection refused") || !strings.Contains(s.Unknown[1], "connection refused") {
		t.Errorf("without ClickHouse: lag %d, letters %v, unknown %q", *s.Lag, s.Letters, s.Unknown)
	}
	if people := w.must(1, "status"); !strings.Contains(people.stdout, "unknown  stored rows: ") || !strings.Contains(people.stderr, "could not be asked") {
		t.Errorf("people read\n%s%s", people.stdout, people.stderr)
	}
}

func known(n *int64) string {
	if n == nil {
		return "none"
	}
	return fmt.Sprint(*n)
}
