package outbox

import (
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// judge compares Kafka with what was committed.
func (w *stress) judge(length time.Duration) {
	t := w.t
	records := consume(t, w.kafka, "results")
	published, duplicates, overtaken := map[string]string{}, 0, 0
	places := map[string]*kgo.Record{}
	newest := map[string]int{}
	for _, r := range records {
		version := header(r, HeaderVersion)
		id := string(r.Key) + "-" + version
		places[fmt.Sprintf("%d@%d", r.Partition, r.Offset)] = r
		if nonce, ok := published[id]; ok {
			duplicates++
			if nonce != string(r.Value) {
				t.Errorf("%s was published with two contents", id)
			}
			continue
		}
		published[id] = string(r.Value)
		n := number(t, version)
		if n < newest[string(r.Key)] {
			overtaken++
		}
		newest[string(r.Key)] = max(n, newest[string(r.Key)])
	}
	committed, kept := 0, 0
	for _, s := range w.shards {
		committed += w.compare(s, published)
		if n := ask(t, s.db, "SELECT GROUP_CONCAT(what SEPARATOR '; ') FROM violation"); n != "" {
			t.Errorf("%s: transitions that must not be: %s", s.name, n)
		}
		kept += w.places(s, places)
	}
	for id := range published {
		t.Errorf("%s was published and never committed", id)
	}
	sum := func(name string, labels ...string) float64 { return total(t, w.registry, name, labels...) }
	if n := strings.Count(w.log.String(), "Error 1213") + strings.Count(w.log.String(), "Error 1205"); n > 0 {
		t.Errorf("%d deadlocks or lock waits were not retried", n)
	}
	if w.brokerKills == 0 || w.shardKills == 0 || w.unknown.Load() == 0 || sum("returned_total", "trouble")+sum("errors_total", "publish") == 0 {
		t.Error("no writer noticed that a shard was killed, or no relay that the broker was")
	}
	rejected := sum("rejected_total")
	if rejected == 0 || sum("expired_total") == 0 || w.crashedBefore.Load() == 0 || w.crashedAfter.Load() == 0 || w.dozed.Load() == 0 {
		// A few seconds of chance on a busy machine may leave one of them out; minutes may not.
		if t.Logf("not everything happened that is to be survived"); length >= time.Minute {
			t.Fail()
		}
	}
	t.Logf("%s: %d events committed (%d writes were rolled back, %d failed with their server), all of them published, none else; %d records, %d duplicates (%.1f %%), %d first publications overtaken (%.2f %%)",
		length, committed, w.rolledBack.Load(), w.unknown.Load(), len(records), duplicates, 100*float64(duplicates)/float64(committed), overtaken, 100*float64(overtaken)/float64(committed))
	t.Logf("servers: the broker was killed %d times, one of the two shards %d times", w.brokerKills, w.shardKills)
	t.Logf("relays: %d killed before and %d after publishing, %d slept beyond their lease; %.0f claims, %.0f expired, %.0f transitions of stale claimants rejected, %.0f events given back in outages, %.0f deadlocks and %.0f lock waits repeated, %.0f purged; slowest write %.0f ms outside of restarts",
		w.crashedBefore.Load(), w.crashedAfter.Load(), w.dozed.Load(), sum("claims_total"), sum("expired_total"), rejected, sum("returned_total", "trouble"),
		sum("repeated_transactions_total", "deadlock"), sum("repeated_transactions_total", "lock_wait"), sum("purged_total"), float64(w.slowest.Load())/1000)
	t.Logf("%d rows are left in the outboxes, all at the place in Kafka that they name", kept)
}

// places holds that what a row says of its place in Kafka is true.
func (w *stress) places(s *stressShard, records map[string]*kgo.Record) (rows int) {
	w.t.Helper()
	found, err := s.db.Query("SELECT CONCAT(sent_partition, '@', sent_offset), aggregate_id, version FROM outbox WHERE state = 'sent'")
	if err != nil {
		w.t.Fatal(err)
	}
	defer found.Close()
	for found.Next() {
		var place, aggregate, version string
		if err := found.Scan(&place, &aggregate, &version); err != nil {
			w.t.Fatal(err)
		}
		rows++
		if r := records[place]; r == nil || string(r.Key) != aggregate || header(r, HeaderVersion) != version {
			w.t.Errorf("%s: version %s of %s is said to be at %s, where there is %v", s.name, version, aggregate, place, r)
		}
	}
	if err := found.Err(); err != nil {
		w.t.Fatal(err)
	}
	return rows
}

// compare holds that what a shard has committed was published as it was
// committed, and takes it out of published. It returns how much that is.
func (w *stress) compare(s *stressShard, published map[string]string) (committed int) {
	w.t.Helper()
	rows, err := s.db.Query("SELECT CONCAT(id, '-', version), nonce FROM history")
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, nonce string
		if err := rows.Scan(&id, &nonce); err != nil {
			w.t.Fatal(err)
		}
		committed++
		switch got, ok := published[id]; {
		case !ok:
			w.t.Errorf("%s was committed and never published", id)
		case got != nonce:
			w.t.Errorf("%s was published as a transaction left it that was rolled back", id)
		}
		delete(published, id)
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
	return committed
}
