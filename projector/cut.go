package projector

import (
	"time"

	"github.com/chprojector/projector/mapping"
)

// cutsPerLane is how many cuts a lane has: one open, one with the sender, one between the two. They are made once
// and go round, so this number is the memory bound of a lane and its back-pressure at once.
const cutsPerLane = 3

// cut is the unit of work: rows and letters, and the offsets they cover. It is inserted whole, its letters are
// acknowledged, and only then are its offsets committed.
//
// A cut has one owner at a time: the poll loop fills it, the queue holds it, the sender settles it and gives it back
// empty. Only forgotten in its slots is shared, under the ledger's mutex.
type cut struct {
	id      uint64 // distinguishes the rounds of a reused cut; never 0 once opened
	rows    *mapping.Rows
	letters []Letter
	slots   []slot

	records     int // consumed: rows, letters and ignored records
	ignored     int // records that configuration ignores
	letterBytes int
	run         int       // most records refused in a row up to one of this cut, earlier cuts included
	born        time.Time // of the first record
	oldest      time.Time // timestamp of the oldest record: the first ones of each fetch are compared
	done        chan struct{}
}

// slot is what a cut holds of one partition.
type slot struct {
	topic     string
	partition int32
	first     int64     // offset of the first record held
	next      int64     // offset after the last record held: what is to be committed
	epoch     int32     // leader epoch of the last record held
	high      int64     // the partition's high watermark when the last record was fetched
	newest    time.Time // timestamp of the newest record: the last ones of each fetch are compared
	forgotten bool      // the partition went to another member: never commit
}

func newCut(plan *mapping.Plan) *cut { return &cut{rows: plan.NewRows()} }

// reset empties c and keeps its memory.
func (c *cut) reset() {
	c.rows.Reset()
	clear(c.letters) // or the letters' records would live as long as the lane
	*c = cut{rows: c.rows, letters: c.letters[:0], slots: c.slots[:0]}
}

// begin opens an empty cut for a new round.
func (c *cut) begin(id uint64, now time.Time) {
	c.id, c.born, c.done = id, now, make(chan struct{})
}

// size is the data held, in bytes.
func (c *cut) size() int { return c.rows.Size() + c.letterBytes }

// refuse adds a letter.
func (c *cut) refuse(l Letter) {
	c.letters = append(c.letters, l)
	c.letterBytes += l.size()
}

// holds reports whether c would commit an offset of one of the partitions.
func (c *cut) holds(partitions map[string][]int32) bool {
	for i := range c.slots {
		if s := &c.slots[i]; !s.forgotten && contains(partitions, s.topic, s.partition) {
			return true
		}
	}
	return false
}
