package fitness

import (
	"errors"
	"fmt"
	"math/bits"
)

// Config says which events a [Generator] writes. The zero value of every field but Records is useful.
type Config struct {
	Seed       uint64
	Records    int     // records, that is, different data ids
	Versions   int     // versions of each record, 1..Versions; 0 means 1
	Campaigns  int     // different detect ids; 0 means 64
	Duplicates float64 // events that repeat another one byte by byte, as a share of all events, 0 up to 0.9
	Deletions  float64 // events that delete their record, as a share, 0..1; a later version brings the record back
	Shuffled   bool    // events in random order; otherwise all first versions, then all second ones, …, then duplicates
	Size       int     // pad every event to about this many bytes with fields the mapping does not know; 0: no padding
	FirstID    uint64  // data id of the first record, the others follow; 0 means 900001
}

// Generator writes a fixed sequence of events. Every event is a function of the configuration and its place in the
// sequence alone, so several goroutines may write parts of one sequence, and nothing is kept in memory. A Generator is
// immutable.
type Generator struct {
	cfg    Config
	states int // events before duplicates: Records * Versions
	events int
	mask   uint64 // smallest 2^n-1 that is not below events
	half   int    // half of n, for the permutation's shifts
}

// New returns the generator of a sequence. It names every field of the configuration that cannot be.
func New(cfg Config) (*Generator, error) {
	if cfg.Versions == 0 {
		cfg.Versions = 1
	}
	if cfg.Campaigns == 0 {
		cfg.Campaigns = 64
	}
	if cfg.FirstID == 0 {
		cfg.FirstID = 900_001
	}
	var errs []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("fitness events: "+format, args...))
		}
	}
	refuse(cfg.Records < 1 || cfg.Records > 1<<31, "Records is %d, want 1..2^31", cfg.Records)
	refuse(cfg.Versions < 1 || cfg.Versions > 1<<16, "Versions is %d, want 1..65536", cfg.Versions)
	refuse(cfg.Campaigns < 1, "Campaigns is %d, want at least 1", cfg.Campaigns)
	refuse(!(cfg.Duplicates >= 0 && cfg.Duplicates <= 0.9), "Duplicates is %v, want 0..0.9", cfg.Duplicates)
	refuse(!(cfg.Deletions >= 0 && cfg.Deletions <= 1), "Deletions is %v, want 0..1", cfg.Deletions)
	refuse(cfg.Size < 0 || cfg.Size > 64<<20, "Size is %d, want 0..64 MiB", cfg.Size)
	refuse(cfg.Records > 0 && cfg.FirstID+uint64(cfg.Records)-1 < cfg.FirstID, "the last data id exceeds UInt64")
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	g := &Generator{cfg: cfg, states: cfg.Records * cfg.Versions}
	g.events = int(float64(g.states)/(1-cfg.Duplicates) + 0.5)
	n := max(bits.Len64(uint64(g.events-1)), 2)
	g.mask, g.half = 1<<n-1, (n+1)/2
	return g, nil
}

// Len returns how many events the sequence has, duplicates included.
func (g *Generator) Len() int { return g.events }

// Records returns how many different records the sequence speaks of.
func (g *Generator) Records() int { return g.cfg.Records }

// At returns the event at place i, 0 <= i < Len.
func (g *Generator) At(i int) Event {
	record, version := g.place(i)
	return g.event(record, version)
}

// AppendValue appends the Kafka value of the event at place i: its JSON, padded to the configured size.
func (g *Generator) AppendValue(dst []byte, i int) []byte {
	record, version := g.place(i)
	e := g.event(record, version)
	start := len(dst)
	dst = e.appendFields(dst)
	if g.cfg.Size > 0 {
		dst = appendDetails(dst, g.cfg.Size-(len(dst)-start)-1, g.random(record, version, saltDetails))
	}
	return append(dst, '}')
}

// AppendKey appends the Kafka key of the event at place i.
func (g *Generator) AppendKey(dst []byte, i int) []byte {
	e := g.At(i)
	return e.AppendKey(dst)
}

// place maps a place in the sequence to the record and the version whose event stands there.
func (g *Generator) place(i int) (record, version int) {
	if i < 0 || i >= g.events {
		panic(fmt.Sprintf("fitness: event %d of a sequence of %d", i, g.events))
	}
	if g.cfg.Shuffled {
		i = g.permute(i)
	}
	if i >= g.states {
		i = int(g.random(i, 0, saltDuplicate) % uint64(g.states))
	}
	return i % g.cfg.Records, i/g.cfg.Records + 1
}

// permute is a bijection of [0, events): multiplications by odd numbers and xor-shifts are bijections of n-bit numbers,
// and a number outside the range is sent round again until it falls inside.
func (g *Generator) permute(i int) int {
	x, key := uint64(i), mix(g.cfg.Seed+saltOrder)
	for {
		x = (x + key) & g.mask
		for range 3 {
			x = x * 0x9e3779b97f4a7c15 & g.mask
			x ^= x >> g.half
		}
		if x < uint64(g.events) {
			return int(x)
		}
	}
}

// event is the content of one version of one record.
func (g *Generator) event(record, version int) Event {
	constant := g.random(record, 0, saltRecord)
	changing := g.random(record, version, saltState)
	d := &disciplines[constant%uint64(len(disciplines))]
	span := uint64(d.most-d.least)/d.step + 1
	return Event{
		DataID:    g.cfg.FirstID + uint64(record),
		DetectID:  10_001 + constant>>8%uint64(g.cfg.Campaigns),
		UserID:    1 + constant>>32%100_000,
		ProjectID: d.id,
		Version:   uint64(version),
		Result:    d.least + int64(changing%span*d.step),
		Decimals:  d.decimals,
		Unit:      d.unit,
		IsDeleted: float64(changing>>40)/(1<<24) < g.cfg.Deletions,
	}
}

// disciplines give their ranges and steps in thousandths of the unit.
var disciplines = [...]struct {
	id          uint32
	unit        string
	least, most int64
	step        uint64
	decimals    uint8
}{
	{1, "s", 6_500, 12_000, 10, 2},             // 50 m sprint
	{2, "cm", -12_000, 32_000, 100, 1},         // sit and reach
	{3, "m", 1_200, 2_900, 10, 2},              // standing long jump
	{4, "n", 5_000, 70_000, 1_000, 0},          // sit-ups
	{5, "mL", 1_200_000, 6_000_000, 50_000, 0}, // vital capacity
	{6, "s", 180_000, 420_000, 100, 1},         // 1000 m run
	{7, "kg/m²", 13_000, 32_000, 1, 3},         // body mass index
	{8, "n", 0, 25_000, 1_000, 0},              // pull-ups
}

// One salt for each use of the seed, so that the uses are independent.
const (
	saltOrder uint64 = iota + 1
	saltDuplicate
	saltRecord
	saltState
	saltDetails
)

func (g *Generator) random(record, version int, salt uint64) uint64 {
	return mix(mix(g.cfg.Seed+salt<<56+uint64(record)) + uint64(version))
}

// mix is the finisher of SplitMix64 (Steele, Lea, Flood 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
