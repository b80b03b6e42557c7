package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/chprojector/projector/internal/audit"
	"github.com/chprojector/projector/internal/config"
	"github.com/chprojector/projector/internal/deadletter"
	"github.com/chprojector/projector/internal/kafka"
	"github.com/chprojector/projector/internal/offsets"
)

// projectionStatus is what is known of one projection. Nil is unknown.
type projectionStatus struct {
	Projection string            `json:"projection"`
	Table      string            `json:"table"`
	Group      string            `json:"group"`
	Lag        *int64            `json:"lag"`
	Newest     *time.Time        `json:"newest_row_at"`
	Age        *float64          `json:"newest_row_age_seconds"`
	Partitions []partitionStatus `json:"partitions"`
	Letters    []letterStatus    `json:"dead_letters"`
	Trouble    []string          `json:"trouble,omitempty"` // lost offsets, each with what to do
	// Discrepancies are unresolved findings of comparisons, by kind;
	// version_conflict is one version with two contents.
	Discrepancies map[string]uint64  `json:"discrepancies"`
	Reconciled    []comparisonStatus `json:"last_reconciled"`
	// Repairs are those that are not at their end, by state: applied ones await
	// their verification.
	Repairs map[audit.State]int `json:"repairs"`
	Unknown []string            `json:"unknown,omitempty"`
}

// comparisonStatus is the newest comparison with one kind of source.
type comparisonStatus struct {
	Against  string    `json:"against"`
	Campaign string    `json:"campaign"`
	Level    string    `json:"level"`
	Verdict  string    `json:"verdict"`
	At       time.Time `json:"at"`
}

type partitionStatus struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed *int64 `json:"committed"`
	End       *int64 `json:"end"`
	Lag       *int64 `json:"lag"`
	Expired   int64  `json:"expired,omitempty"` // removed by retention before it was read
	Stored    *int64 `json:"stored"`
	// The newest row of this partition.
	Newest *time.Time `json:"newest_row_at"`
	Age    *float64   `json:"newest_row_age_seconds"`

	State offsets.State `json:"state,omitempty"` // absent while Kafka or ClickHouse is unknown
	start int64
}

type letterStatus struct {
	Topic   string         `json:"topic"`
	Letters int64          `json:"letters"`
	Scanned int            `json:"scanned"` // the newest of them, read for the classes
	Classes map[string]int `json:"classes"`
	Newest  *time.Time     `json:"newest_at"`
	// Samples are the newest letter of each class.
	Samples map[string]letterSample `json:"samples"`
}

// letterSample is what one letter says.
type letterSample struct {
	Column    string    `json:"column"`
	Error     string    `json:"error"`
	Topic     string    `json:"topic"` // of the record; "" for one that no projector wrote
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Parked    time.Time `json:"parked_at"`
}

// The parts of a status, each asked by itself.
const (
	partOffsets = "offsets"
	partStored  = "stored rows"
	partLetters = "dead letters"
	partFound   = "discrepancies"
)

// newStatus puts together what the servers said. The command and the status
// page show the same, because both show this.
func newStatus(cfg *config.Config, p *config.Projection, a answers) *projectionStatus {
	s := &projectionStatus{Projection: p.Name, Table: cfg.Table(p).Physical(), Group: cfg.Group(p)}
	for _, part := range []struct {
		name string
		err  error
		add  func()
	}{
		{partOffsets, a.offsetsErr, func() { s.addOffsets(a.offsets) }},
		{partStored, a.storedErr, func() { s.addStored(a.stored) }},
		{partLetters, a.lettersErr, func() { s.addLetters(a.letters) }},
		{partFound, a.foundErr, func() {
			s.Discrepancies, s.Reconciled, s.Repairs = a.found.discrepancies, a.found.reconciled, a.found.repairs
		}},
	} {
		if part.err != nil {
			s.Unknown = append(s.Unknown, fmt.Sprintf("%s: %v", part.name, part.err))
		} else {
			part.add()
		}
	}
	return s
}

func (s *projectionStatus) addOffsets(lags []kafka.PartitionLag) {
	var total int64
	for _, l := range lags {
		lag := l.Lag()
		part := partitionStatus{Topic: l.Topic, Partition: l.Partition, End: &l.End, Lag: &lag, Expired: l.Expired(), start: l.Start}
		if l.Committed >= 0 {
			part.Committed = &l.Committed
		}
		total += lag
		s.Partitions = append(s.Partitions, part)
	}
	s.Lag = &total
}

func (s *projectionStatus) addStored(rows []storedRow) {
	for _, r := range rows {
		age := r.Now.Sub(r.Newest).Seconds()
		if s.Newest == nil || r.Newest.After(*s.Newest) {
			s.Newest, s.Age = &r.Newest, &age
		}
		i := slices.IndexFunc(s.Partitions, func(p partitionStatus) bool { return p.Topic == r.Topic && p.Partition == r.Partition })
		if i < 0 { // Kafka did not answer, or the topic is no longer consumed
			i = len(s.Partitions)
			s.Partitions = append(s.Partitions, partitionStatus{Topic: r.Topic, Partition: r.Partition})
		}
		s.Partitions[i].Stored, s.Partitions[i].Newest, s.Partitions[i].Age = &r.Offset, &r.Newest, &age
	}
	s.judge()
}

// judge finds partitions whose commit does not fit what Kafka and the table
// hold. It needs both answers.
func (s *projectionStatus) judge() {
	for i := range s.Partitions {
		p := &s.Partitions[i]
		if p.End == nil { // not asked, or a topic that is no longer consumed
			continue
		}
		l := kafka.PartitionLag{Topic: p.Topic, Partition: p.Partition, Start: p.start, End: *p.End, Committed: orNone(p.Committed)}
		p.State = offsets.Judge(l, orNone(p.Stored))
		if trouble := troubleOf(p.Topic, p.Partition, p.State, p.start, p.Committed, p.Stored, s.Projection); trouble != "" {
			s.Trouble = append(s.Trouble, trouble)
		}
	}
}

// orNone is an offset, -1 for none.
func orNone(offset *int64) int64 {
	if offset == nil {
		return -1
	}
	return *offset
}

func (s *projectionStatus) addLetters(all []deadletter.Stats) {
	for _, st := range all {
		l := letterStatus{Topic: st.Topic, Letters: st.Letters, Scanned: st.Scanned, Classes: st.Classes, Samples: map[string]letterSample{}}
		for class, sample := range st.Samples {
			i := sample.Info
			l.Samples[class] = letterSample{i.Column, i.Error, i.Topic, i.Partition, i.Offset, sample.Parked}
		}
		if !st.Newest.IsZero() {
			l.Newest = &st.Newest
		}
		s.Letters = append(s.Letters, l)
	}
}
