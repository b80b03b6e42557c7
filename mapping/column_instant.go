package mapping

import (
	"encoding/binary"
	"math"
	"strconv"
	"time"

	"github.com/chprojector/projector/chschema"
)

// instantColumn holds DateTime, seconds from 1970 to 2106, or DateTime64(P),
// ticks of 10^-P seconds from 1900 to 2299 (with nanoseconds to 2262).
//
// It reads RFC 3339 texts. One without an offset needs the column's zone, and
// a number needs its unit.
type instantColumn struct {
	fixed
	typ      chschema.Type
	options  *options
	zone     zoneReader
	shown    *time.Location // in which the server shows it
	min, max int64          // ticks
}

func newInstantColumn(t chschema.Type, o *options) *instantColumn {
	c := &instantColumn{fixed: fixed{width: t.Size()}, typ: t, options: o, zone: zoneReader{location: o.zone}, shown: time.UTC}
	if t.Zone != "" {
		if zone, err := time.LoadLocation(t.Zone); err == nil {
			c.shown = zone
		}
	}
	if t.Kind == chschema.KindDateTime {
		c.max = math.MaxUint32
		return c
	}
	perSecond := int64(pow10s[t.Precision])
	c.min = daysFromCivil(1900, 1, 1) * 86400 * perSecond
	c.max = math.MaxInt64
	if t.Precision < 9 {
		c.max = daysFromCivil(2300, 1, 1)*86400*perSecond - 1
	}
	return c
}

const anInstant = "a string with a time"

func (c *instantColumn) appendJSON(s *scanner) bool {
	start := s.pos
	var text []byte
	switch b := s.peek(); {
	case b == '"':
		var ok bool
		if text, ok = s.str(); !ok {
			return false
		}
		if end, ok := scanNumber(text, 0); ok && end == len(text) {
			return c.appendNumber(s, text, start)
		}
		return c.appendTime(s, text, start)
	case b == '-' || b-'0' <= 9:
		text, ok := s.number()
		return ok && c.appendNumber(s, text, start)
	case c.options.unit >= 0:
		return s.wrongType("a number or a string with a time")
	}
	return s.wrongType(anInstant)
}

func (c *instantColumn) appendNumber(s *scanner, text []byte, start int) bool {
	if c.options.unit < 0 {
		return s.fail(ClassType, start, "a number where "+anInstant+" was expected; set the column's unit (s, ms, us or ns) if it counts from 1970-01-01 UTC")
	}
	w, negative, out := scaled(text, c.typ.Precision-c.options.unit, c.options.halfEven)
	switch {
	case out == overflow || !w.less(&wide{1 << 63}):
		return c.outOfRange(s, start)
	case out == lost:
		return c.lost(s, start)
	}
	ticks := int64(w[0])
	if negative {
		ticks = -ticks
	}
	return c.appendTicks(s, ticks, start)
}

func (c *instantColumn) appendTime(s *scanner, text []byte, start int) bool {
	t, form := parseTimestamp(text)
	switch {
	case form == notTime:
		return s.fail(ClassFormat, start, "not a time like 2026-09-30T08:15:00.250Z")
	case form == noSuchTime:
		return s.fail(ClassTime, start, "there is no such time")
	case !t.hasOffset && c.options.zone == nil:
		return s.fail(ClassTime, start, "a time without a zone is no instant; set the column's zone if the producer means one")
	}
	seconds := t.local - t.offset
	if !t.hasOffset {
		var matches int
		switch seconds, matches = c.zone.instant(t.local); {
		case matches == 0:
			return s.fail(ClassTime, start, "this time does not exist in "+c.options.zone.String()+": the clocks went forward over it")
		case matches > 1:
			return s.fail(ClassTime, start, "this time is ambiguous in "+c.options.zone.String()+": the clocks went back over it")
		}
	}
	ticks, out := c.ticks(seconds, t.fraction)
	switch out {
	case overflow:
		return c.outOfRange(s, start)
	case lost:
		return c.lost(s, start)
	}
	return c.appendTicks(s, ticks, start)
}

// ticks returns seconds and the decimal digits of a fraction in the column's
// ticks.
func (c *instantColumn) ticks(seconds int64, fraction []byte) (ticks int64, out outcome) {
	perSecond := int64(pow10s[c.typ.Precision])
	if seconds > math.MaxInt64/perSecond || seconds < math.MinInt64/perSecond {
		return 0, overflow
	}
	sub := int64(0)
	for i := range c.typ.Precision {
		sub *= 10
		if i < len(fraction) {
			sub += int64(fraction[i] - '0')
		}
	}
	if ticks = seconds * perSecond; ticks > math.MaxInt64-sub {
		return 0, overflow
	}
	ticks += sub
	if len(fraction) <= c.typ.Precision {
		return ticks, exact
	}
	after, sticky := fraction[c.typ.Precision]-'0', false
	for _, d := range fraction[c.typ.Precision+1:] {
		sticky = sticky || d != '0'
	}
	switch {
	case after == 0 && !sticky:
		return ticks, exact
	case !c.options.halfEven:
		return 0, lost
	case after > 5 || after == 5 && (sticky || ticks&1 != 0):
		ticks++
	}
	return ticks, exact
}

func (c *instantColumn) appendTicks(s *scanner, ticks int64, start int) bool {
	if ticks < c.min || ticks > c.max {
		return c.outOfRange(s, start)
	}
	if c.width == 4 {
		c.data = binary.LittleEndian.AppendUint32(c.data, uint32(ticks))
	} else {
		c.data = binary.LittleEndian.AppendUint64(c.data, uint64(ticks))
	}
	return true
}

func (c *instantColumn) outOfRange(s *scanner, start int) bool {
	utc := *c
	utc.shown = time.UTC
	low, high := utc.appendTick(nil, c.min), utc.appendTick(nil, c.max)
	return s.fail(ClassRange, start, "out of the range of "+c.typ.String()+", "+string(low)+" to "+string(high)+" UTC")
}

func (c *instantColumn) lost(s *scanner, start int) bool {
	return s.fail(ClassPrecision, start, "finer than "+strconv.Itoa(c.typ.Precision)+" digits below the second, but the column is "+c.typ.String()+"; round: half_even would allow it")
}

func (c *instantColumn) appendText(dst []byte, i int, quoted bool) []byte {
	ticks := int64(0)
	if c.width == 4 {
		ticks = int64(binary.LittleEndian.Uint32(c.at(i)))
	} else {
		ticks = int64(binary.LittleEndian.Uint64(c.at(i)))
	}
	return appendQuote(c.appendTick(appendQuote(dst, quoted), ticks), quoted)
}

// appendTick appends an instant as the server shows it in the type's zone, or
// in UTC if the type names none.
func (c *instantColumn) appendTick(dst []byte, ticks int64) []byte {
	perSecond := int64(pow10s[c.typ.Precision])
	seconds, sub := ticks/perSecond, ticks%perSecond
	if sub < 0 {
		seconds--
		sub += perSecond
	}
	dst = time.Unix(seconds, 0).In(c.shown).AppendFormat(dst, time.DateTime)
	if c.typ.Precision > 0 {
		dst = appendPadded(append(dst, '.'), sub, c.typ.Precision)
	}
	return dst
}
