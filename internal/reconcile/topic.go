package reconcile

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/internal/contract"
	"github.com/chprojector/projector/internal/kafka"
)

// Topic is the state that the projection's topics themselves say: of each record
// the event with the highest version. It is for teams that cannot reach MySQL.
//
// It reads on its own, from the oldest event to the ends as they are when a
// reading begins, without a group, so that nothing is committed and nobody is
// disturbed. Only the records of one campaign are kept, and of those a digest;
// when there are too many for the memory the topic is read several times, each
// time for a share of the records. Where there are events of other campaigns it
// is read once more, for those that have left.
type Topic struct {
	Contract *contract.Contract
	Admin    *kafka.Admin
	Kafka    []kgo.Opt
	Topics   []string
	Ignore   bool // tombstones of Kafka mean nothing

	Share   int           // records in memory at once; 0 = shareOfTopic
	Silence time.Duration // how long to wait for the next record; 0 = a minute

	unread     int64 // events of the last reading that the contract could not read
	unreadable []Unreadable
}

// Unreadable is an event that the contract cannot read, and why.
type Unreadable struct {
	Place  string `json:"place"` // topic/partition@offset
	Reason string `json:"reason"`
}

// maxUnreadable is how many of a reading are kept.
const maxUnreadable = 5

// shareOfTopic is about 100 MB of digests.
const shareOfTopic = 1_000_000

// silence is how long a reading waits for the next record. Ends that are never
// reached are behind a transaction that stays open.
const silence = time.Minute

var _ Side = (*Topic)(nil)

// Partial reports whether events were removed from the topics, or may have been:
// what is not in them then proves nothing. Retention shows in the oldest offset,
// compaction in the topic's configuration alone; who may not read that is taken
// to know that topics are not compacted, and a question without an answer is an
// error.
func (t *Topic) Partial(ctx context.Context) (bool, error) {
	offsets, err := t.Admin.Offsets(ctx, t.Topics...)
	if err != nil {
		return false, err
	}
	for _, o := range offsets {
		if o.Start > 0 {
			return true, nil
		}
	}
	for _, topic := range t.Topics {
		compacted, err := t.Admin.Compacted(ctx, topic)
		if err != nil && !errors.Is(err, kafka.ErrConfigHidden) {
			return false, fmt.Errorf("learn whether the topics are compacted: %w", err)
		}
		if compacted {
			return true, nil
		}
	}
	return false, nil
}

// Unread is how many events of the last reading the contract could not read,
// and the first of them.
func (t *Topic) Unread() (int64, []Unreadable) { return t.unread, t.unreadable }

// known is what is kept of a record.
type known struct {
	version          uint64
	bucket           uint32
	events           uint32 // of the version
	deleted          bool
	versions, fields contract.Digest
}

// same reports whether two events of one version say the same.
func (k known) same(o known) bool { return k.versions == o.versions && k.fields == o.fields }

// share is a part of all records: those whose hash leaves rest when divided by
// of.
type share struct{ rest, of uint32 }

func (s share) has(key contract.Digest) bool { return binary.BigEndian.Uint32(key[:4])%s.of == s.rest }

// Digests implements [Side].
func (t *Topic) Digests(ctx context.Context, campaign string, s contract.Scan) (Summary, error) {
	sum := Summary{Buckets: make([]Digest, s.Buckets)}
	home, err := t.Contract.CanonicalCampaign(campaign)
	if err != nil {
		return sum, err
	}
	limit := t.Share
	if limit == 0 {
		limit = shareOfTopic
	}
	var part Digest
	for todo := []share{{0, 1}}; len(todo) > 0; {
		mine := todo[0]
		todo = todo[1:]
		records, conflicts := map[contract.Digest]known{}, map[contract.Digest]Conflict{}
		err := t.read(ctx, s, home, func(e contract.Event, _ string) {
			key := contract.Sum(e.ID)
			if !mine.has(key) {
				return
			}
			old, again := records[key]
			if again && old.version > e.Version {
				return
			}
			k := known{version: e.Version, bucket: contract.Bucket(e.ID, s.Buckets), events: 1, deleted: e.Deleted, versions: contract.SumVersion(e.ID, e.Version, e.Deleted)}
			if !e.Deleted {
				k.fields = contract.Sum(e.Content)
			}
			again = again && old.version == e.Version
			if again {
				k.events += old.events
			} else {
				delete(conflicts, key)
			}
			if _, is := conflicts[key]; is || again && !k.same(old) {
				conflicts[key] = Conflict{ID: t.Contract.Identity(e.ID), Key: e.ID, Version: e.Version, Rows: uint64(k.events), In: InTopic, Campaign: campaign}
			}
			records[key] = k
			if len(records) > limit { // the other half is read another time
				todo = append(todo, share{mine.rest + mine.of, 2 * mine.of})
				mine.of *= 2
				for key := range records {
					if !mine.has(key) {
						delete(records, key)
						delete(conflicts, key)
					}
				}
			}
		}, func(e contract.Event) {
			key := contract.Sum(e.ID)
			if k, ok := records[key]; ok && k.version < e.Version {
				delete(records, key)
				delete(conflicts, key)
			}
		})
		if err != nil {
			return sum, err
		}
		for _, c := range conflicts {
			if sum.ConflictsCut = len(sum.Conflicts) >= maxConflicts; sum.ConflictsCut {
				break
			}
			sum.Conflicts = append(sum.Conflicts, c)
		}
		for _, k := range records {
			d := Digest{Revision: k.version, Live: 1}
			if k.deleted {
				d.Live, d.Deleted = 0, 1
			}
			if s.Level >= contract.Versions {
				d.VersionsHigh, d.VersionsLow = k.versions.Halves()
			}
			if s.Level >= contract.Fields && !k.deleted {
				d.FieldsHigh, d.FieldsLow = k.fields.Halves()
			}
			sum.Buckets[k.bucket].add(d)
			part.add(d)
		}
	}
	slices.SortFunc(sum.Conflicts, func(a, b Conflict) int { return strings.Compare(a.Key, b.Key) })
	sum.Parts = []Part{{"topic", part.Live, part.Deleted, part.Revision}}
	return sum, nil
}

// Records implements [Side]. The caller bounds the scan.
func (t *Topic) Records(ctx context.Context, campaign string, s contract.Scan, each func(Record) error) error {
	home, err := t.Contract.CanonicalCampaign(campaign)
	if err != nil {
		return err
	}
	records := map[string]Record{}
	err = t.read(ctx, s, home, func(e contract.Event, place string) {
		if old, again := records[e.ID]; again && old.Version > e.Version {
			return
		}
		r := Record{ID: e.ID, Version: e.Version, Deleted: e.Deleted, Place: place}
		if s.Level >= contract.Fields {
			r.Content = e.Content
		}
		records[e.ID] = r
	}, func(e contract.Event) {
		if r, ok := records[e.ID]; ok && r.Version < e.Version {
			delete(records, e.ID)
		}
	})
	if err != nil {
		return err
	}
	for _, r := range records {
		if err := each(r); err != nil {
			return err
		}
	}
	return nil
}

// read calls each for every event that the scan's buckets have of the campaign
// home, and then elsewhere for every one that they have of another campaign: a
// newer version may have taken a record out of home, and may be read before what
// it took. Keeping them all to read once would take memory for all campaigns.
func (t *Topic) read(ctx context.Context, s contract.Scan, home string, each func(e contract.Event, place string), elsewhere func(contract.Event)) error {
	offsets, err := t.Admin.Offsets(ctx, t.Topics...) // of both readings: the second one must not know more than the first
	if err != nil {
		return err
	}
	others := false
	if err := t.scan(ctx, s, offsets, func(e contract.Event, place string) {
		if e.Campaign == home {
			each(e, place)
		} else {
			others = true
		}
	}); err != nil || !others {
		return err
	}
	return t.scan(ctx, s, offsets, func(e contract.Event, _ string) {
		if e.Campaign != home {
			elsewhere(e)
		}
	})
}

// scan calls each for every event of the scan's buckets.
func (t *Topic) scan(ctx context.Context, s contract.Scan, offsets []kafka.PartitionOffsets, each func(e contract.Event, place string)) error {
	var only map[uint32]bool
	if len(s.Only) > 0 {
		only = map[uint32]bool{}
		for _, b := range s.Only {
			only[b] = true
		}
	}
	t.unread, t.unreadable = 0, nil
	unread := func(r *kgo.Record, reason string) {
		if t.unread++; t.unread <= maxUnreadable {
			t.unreadable = append(t.unreadable, Unreadable{placeOf(r), reason})
		}
	}
	return t.events(ctx, offsets, func(r *kgo.Record) {
		if r.Value == nil {
			if !t.Ignore {
				unread(r, "it has no value")
			}
			return
		}
		e, err := t.Contract.ReadEvent(r.Value)
		switch {
		case err != nil:
			unread(r, err.Error())
		case only != nil && !only[contract.Bucket(e.ID, s.Buckets)]:
		default:
			each(e, placeOf(r))
		}
	})
}

func placeOf(r *kgo.Record) string { return fmt.Sprintf("%s/%d@%d", r.Topic, r.Partition, r.Offset) }

// Campaigns adds the campaigns of all events.
func (t *Topic) Campaigns(ctx context.Context, into map[string]bool) error {
	offsets, err := t.Admin.Offsets(ctx, t.Topics...)
	if err != nil {
		return err
	}
	return t.events(ctx, offsets, func(r *kgo.Record) {
		if e, err := t.Contract.ReadEvent(r.Value); err == nil {
			into[e.Campaign] = true
		}
	})
}

// events reads every record of these offsets.
func (t *Topic) events(ctx context.Context, offsets []kafka.PartitionOffsets, each func(*kgo.Record)) error {
	from, left := map[string]map[int32]kgo.Offset{}, map[Partition]span{}
	for _, o := range offsets {
		if o.Start >= o.End {
			continue
		}
		if from[o.Topic] == nil {
			from[o.Topic] = map[int32]kgo.Offset{}
		}
		from[o.Topic][o.Partition] = kgo.NewOffset().At(o.Start)
		left[Partition{o.Topic, o.Partition}] = span{o.Start, o.End}
	}
	if len(left) == 0 {
		return nil
	}
	client, err := kgo.NewClient(append(t.Kafka[:len(t.Kafka):len(t.Kafka)],
		kgo.ConsumePartitions(from),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // else a topic that ends with one would never be read to its end
		kgo.FetchMaxPartitionBytes(1<<20), kgo.FetchMaxBytes(16<<20),
	)...)
	if err != nil {
		return fmt.Errorf("read the topics: %w", err)
	}
	defer client.CloseAllowingRebalance()
	for len(left) > 0 {
		waiting, cancel := context.WithTimeoutCause(ctx, cmp.Or(t.Silence, silence), errSilence)
		fetches := client.PollFetches(waiting)
		cause := context.Cause(waiting)
		cancel()
		if err := ctx.Err(); err != nil {
			return err
		}
		if errors.Is(cause, errSilence) {
			return fmt.Errorf("nothing more came for %s of %s: is a transaction open there?", cmp.Or(t.Silence, silence), waitedFor(left))
		}
		for _, e := range fetches.Errors() {
			return fmt.Errorf("read %s/%d: %w", e.Topic, e.Partition, e.Err)
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			at := Partition{p.Topic, p.Partition}
			s, reading := left[at]
			for _, r := range p.Records {
				if !reading || r.Offset >= s.end {
					break
				}
				if !r.Attrs.IsControl() {
					each(r)
				}
				s.next = r.Offset + 1
				left[at] = s
			}
			if n := len(p.Records); reading && n > 0 && p.Records[n-1].Offset >= s.end-1 {
				delete(left, at)
				client.PauseFetchPartitions(map[string][]int32{p.Topic: {p.Partition}})
			}
		})
	}
	return nil
}

var errSilence = errors.New("nothing came")

// span is what is still to be read of a partition.
type span struct{ next, end int64 }

// waitedFor names partitions that were not read to their ends; the first ones,
// where there are many.
func waitedFor(left map[Partition]span) string {
	var list []string
	for p, s := range left {
		list = append(list, fmt.Sprintf("%s/%d (read up to %d, it ends at %d)", p.Topic, p.ID, s.next, s.end))
	}
	slices.Sort(list)
	const named = 10
	if more := len(list) - named; more > 0 {
		list = append(list[:named], fmt.Sprintf("and %d more partitions", more))
	}
	return strings.Join(list, ", ")
}
