package projector

import (
	"bytes"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/chprojector/projector/mapping"
)

// ClassRejected is the class of a letter whose record was mapped and then refused by ClickHouse itself.
const ClassRejected mapping.Class = "rejected"

// Letter is a record that cannot become a row, with the reason. It owns its memory.
type Letter struct {
	Topic     string
	Partition int32
	Offset    int64
	Timestamp time.Time

	Projection string // whose row it could not become

	// Key, Value and Headers are the record's own, untouched. They are missing in a letter whose Gone is set.
	Key, Value []byte
	Headers    []kgo.RecordHeader

	Error *mapping.Error
	Code  int  // ClickHouse's error code, 0 if ClickHouse was not asked
	Gone  bool // the record was refused by ClickHouse and is no longer in the topic: only its place and time are known
}

// letter copies r, whose memory goes back to the client's pool.
func letter(projection string, r *kgo.Record, reason *mapping.Error) Letter {
	headers := slices.Clone(r.Headers)
	for i := range headers {
		headers[i].Value = bytes.Clone(headers[i].Value)
	}
	return Letter{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp,
		Projection: projection,
		Key:        bytes.Clone(r.Key), Value: bytes.Clone(r.Value), Headers: headers,
		Error: reason,
	}
}

// size is the data held by the letter, in bytes.
func (l *Letter) size() int {
	n := len(l.Key) + len(l.Value)
	for i := range l.Headers {
		n += len(l.Headers[i].Key) + len(l.Headers[i].Value)
	}
	return n
}
