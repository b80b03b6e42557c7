package mapping

import "time"

// maxOffset is more than the distance of any zone from UTC, historical local
// mean times included (Asia/Manila had -15:56).
const maxOffset = 16 * 3600

// A zoneReader turns local times of one zone into instants. It remembers the
// last period of constant offset, since the times of one batch lie close.
type zoneReader struct {
	location   *time.Location
	begin, end int64 // the period, shortened at both ends by what makes it free of neighbours
	offset     int64
}

// instant returns the seconds since 1970-01-01 UTC at which the zone's clocks
// show local (seconds since 1970-01-01 by the clock), and how many such
// instants there are: 0 where clocks went forward, 2 where they went back.
func (z *zoneReader) instant(local int64) (seconds int64, matches int) {
	if t := local - z.offset; z.begin <= t && t < z.end {
		return t, 1
	}
	const far = 1 << 60
	for at := local - maxOffset; at <= local+maxOffset; {
		t := time.Unix(at, 0).In(z.location)
		begin, end := int64(-far), int64(far)
		first, last := t.ZoneBounds()
		if !first.IsZero() {
			begin = first.Unix()
		}
		if !last.IsZero() {
			end = last.Unix()
		}
		_, o := t.Zone()
		offset := int64(o)
		if t := local - offset; begin <= t && t < end {
			seconds = t
			matches++
			z.begin, z.end, z.offset = begin+2*maxOffset, end-2*maxOffset, offset
		}
		at = end
	}
	return seconds, matches
}
