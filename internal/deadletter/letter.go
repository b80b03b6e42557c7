package deadletter

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/mapping"
	"github.com/chprojector/projector/projector"
)

// Headers of a letter. They follow the record's own headers in this order,
// HeaderClass first, and all of them are always there, apart from
// HeaderPointer; what is not known is empty.
const (
	HeaderClass      = "projector-class"      // why it could not become a row, one of a bounded set
	HeaderColumn     = "projector-column"     // the column at fault
	HeaderError      = "projector-error"      // the reason for people, at most 1 KiB of UTF-8
	HeaderCode       = "projector-code"       // ClickHouse's error code, 0 if ClickHouse was not asked
	HeaderTopic      = "projector-topic"      // where the record was read first
	HeaderPartition  = "projector-partition"  //
	HeaderOffset     = "projector-offset"     //
	HeaderTimestamp  = "projector-timestamp"  // the record's own, RFC 3339 in UTC with milliseconds; outside years 0 to 9999 in milliseconds since 1970
	HeaderFailedAt   = "projector-failed-at"  // when it became this letter, in the same form
	HeaderReplays    = "projector-replays"    // how many times it was replayed before
	HeaderProjection = "projector-projection" // whose row it could not become: a topic may feed several
	HeaderPointer    = "projector-pointer"    // why the value is not here: PointerTooLarge or PointerGone
)

var headerNames = []string{
	HeaderClass, HeaderColumn, HeaderError, HeaderCode, HeaderTopic, HeaderPartition, HeaderOffset, HeaderTimestamp,
	HeaderFailedAt, HeaderReplays, HeaderProjection, HeaderPointer,
}

// Values of HeaderPointer.
const (
	PointerTooLarge = "too-large" // larger than the dead-letter topic accepts; it stays in its own topic
	PointerGone     = "gone"      // already removed from its topic when it was refused
)

const (
	maxError   = 1 << 10
	timeFormat = "2006-01-02T15:04:05.000Z07:00"
	overhead   = 64 // of a record in a batch, and of a header, rounded up
)

// part says how much of the source record a letter carries.
type part uint8

const (
	whole   part = iota // key, value and headers
	pointer             // key and headers, no value
	place               // only the headers that say what is wrong with which record
)

// source is the place where a letter's record was read first, and the topic
// the letter belongs to.
type source struct {
	topic     string
	partition int32
	offset    int64
	timestamp time.Time
	replays   int
	target    string
	pointer   string             // why the letter before had no value
	headers   []kgo.RecordHeader // the record's own
}

// origin finds the place of a letter. A record that was read from a
// dead-letter topic, for a replay, keeps the place it came from and returns to
// the same topic, whatever its own place there was; what its last letter said
// is replaced. Any other record keeps all of its headers, also those that have
// the names of a letter's: somebody may have copied a letter into its topic,
// and what a record had is not for us to drop.
func origin(l *projector.Letter, suffix string) source {
	s := source{topic: l.Topic, partition: l.Partition, offset: l.Offset, timestamp: l.Timestamp, target: l.Topic + suffix, headers: l.Headers}
	own, was, ok := split(l.Headers)
	if !ok {
		return s
	}
	s.replays = was.Replays + 1
	if was.Topic+suffix == l.Topic {
		s.topic, s.partition, s.offset, s.timestamp, s.target = was.Topic, was.Partition, was.Offset, was.Timestamp, l.Topic
		s.headers, s.pointer = own, was.Pointer
	}
	return s
}

// record is the letter as it is produced. Its own timestamp is that of the
// parking: with the old one, retention would delete letters of old events at
// once, and brokers may refuse it.
func record(l *projector.Letter, s source, p part, now time.Time) *kgo.Record {
	r := &kgo.Record{Topic: s.target, Partition: s.partition}
	reason := pointerReason(l, s, p)
	if p == whole {
		r.Value = l.Value
	}
	if p != place {
		r.Key = l.Key
		r.Headers = slices.Clone(s.headers)
	}
	add := func(key, value string) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: key, Value: []byte(value)})
	}
	var class, column, text string
	if l.Error != nil {
		class, column, text = string(l.Error.Class), l.Error.Column, l.Error.Error()
	}
	add(HeaderClass, class)
	add(HeaderColumn, column)
	add(HeaderError, cut(text, maxError))
	add(HeaderCode, strconv.Itoa(l.Code))
	add(HeaderTopic, s.topic)
	add(HeaderPartition, strconv.Itoa(int(s.partition)))
	add(HeaderOffset, strconv.FormatInt(s.offset, 10))
	add(HeaderTimestamp, FormatTime(s.timestamp))
	add(HeaderFailedAt, FormatTime(now))
	add(HeaderReplays, strconv.Itoa(s.replays))
	add(HeaderProjection, l.Projection)
	if reason != "" {
		add(HeaderPointer, reason)
	}
	return r
}

func pointerReason(l *projector.Letter, s source, p part) string {
	switch {
	case l.Gone:
		return PointerGone
	case s.pointer == "" && p != whole:
		return PointerTooLarge
	}
	return s.pointer // a replay does not bring the value back
}

// size is about what a record takes in a batch before compression.
func size(r *kgo.Record) int {
	n := overhead + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += overhead + len(h.Key) + len(h.Value)
	}
	return n
}

// Info is what a letter's headers say.
type Info struct {
	Class      string
	Column     string
	Error      string
	Code       int
	Topic      string
	Partition  int32
	Offset     int64
	Timestamp  time.Time
	FailedAt   time.Time
	Replays    int
	Projection string // "" in a letter that names none
	Pointer    string // "" for a letter with its value
}

// Place is what makes two letters the same one: where the record was read, and
// its timestamp. A topic that was deleted and created again has other records
// at the same partitions and offsets.
type Place struct {
	Partition int32
	Offset    int64
	Timestamp int64 // milliseconds since 1970
}

// PlaceOf is the place of a record, and of the letters about it.
func PlaceOf(at mapping.Lineage) Place {
	return Place{at.Partition, at.Offset, at.Timestamp.UnixMilli()}
}

// Lineage is where the letter's record was read.
func (i *Info) Lineage() mapping.Lineage {
	return mapping.Lineage{Topic: i.Topic, Partition: i.Partition, Offset: i.Offset, Timestamp: i.Timestamp}
}

// Parse reads the headers of a letter, and returns the record's own apart from
// them. It reports false for a record that no projector wrote: without the
// place it was read from. All of its headers are then its own.
func Parse(r *kgo.Record) (own []kgo.RecordHeader, i Info, ok bool) { return split(r.Headers) }

// split takes the headers of the last letter apart from those before it, which
// may be those of an earlier letter.
func split(headers []kgo.RecordHeader) (own []kgo.RecordHeader, i Info, ok bool) {
	begin := len(headers) - 1
	for begin >= 0 && headers[begin].Key != HeaderClass {
		begin--
	}
	if begin < 0 {
		return headers, Info{}, false
	}
	own = slices.Clone(headers[:begin])
	values := make(map[string]string, len(headerNames))
	for _, h := range headers[begin:] {
		if slices.Contains(headerNames, h.Key) {
			values[h.Key] = string(h.Value)
		} else { // added on the way, by what mirrors topics
			own = append(own, h)
		}
	}
	partition, badPartition := strconv.ParseInt(values[HeaderPartition], 10, 32)
	offset, badOffset := strconv.ParseInt(values[HeaderOffset], 10, 64)
	if values[HeaderTopic] == "" || badPartition != nil || badOffset != nil || partition < 0 || offset < 0 {
		return headers, Info{}, false
	}
	i = Info{
		Class: values[HeaderClass], Column: values[HeaderColumn], Error: values[HeaderError], Pointer: values[HeaderPointer],
		Topic: values[HeaderTopic], Partition: int32(partition), Offset: offset, Projection: values[HeaderProjection],
	}
	i.Code, _ = strconv.Atoi(values[HeaderCode])
	replays, _ := strconv.Atoi(values[HeaderReplays])
	i.Replays = max(0, replays)
	i.Timestamp = parseTime(values[HeaderTimestamp])
	i.FailedAt, _ = time.Parse(timeFormat, values[HeaderFailedAt])
	return own, i, true
}

// FormatTime is how headers have a time: RFC 3339 in UTC with milliseconds, ""
// for the zero time. Producers choose timestamps, and one that gives
// microseconds is in the year 58000: outside the years 0 to 9999 it is the
// milliseconds since 1970. Reading it back loses nothing.
func FormatTime(t time.Time) string {
	t = t.UTC()
	switch {
	case t.IsZero():
		return ""
	case t.Year() < 0 || t.Year() > 9999:
		return strconv.FormatInt(t.UnixMilli(), 10)
	}
	return t.Format(timeFormat)
}

func parseTime(text string) time.Time {
	if t, err := time.Parse(timeFormat, text); err == nil {
		return t
	}
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.UnixMilli(ms).UTC()
	}
	return time.Time{}
}

// cut shortens s to at most n bytes of valid UTF-8.
func cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	const ellipsis = "…"
	n -= len(ellipsis)
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + ellipsis
}
