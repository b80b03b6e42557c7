package mapping

// timestamp is a time as a text says it.
type timestamp struct {
	local     int64  // seconds since 1970-01-01 by the clock of the place
	offset    int64  // seconds by which that clock is before UTC
	hasOffset bool   // the text names the offset
	fraction  []byte // decimal digits below the second, any number of them
}

// form says whether a text is a time.
type form uint8

const (
	isTime     form = iota
	notTime         // another form
	noSuchTime      // the form of a time, but a day, hour or offset that is none
)

// parseTimestamp reads RFC 3339, with these liberties that leave no doubt
// about the instant: a space for the T, no seconds (Java leaves out zero
// seconds), an offset as ±hh:mm, ±hhmm or ±hh, no offset at all, and any
// number of decimals.
func parseTimestamp(text []byte) (t timestamp, f form) {
	if len(text) < len("2006-01-02T15:04") || text[10] != 'T' && text[10] != 't' && text[10] != ' ' || text[13] != ':' {
		return t, notTime
	}
	days, ok, exists := parseDate(text[:10])
	hour, minute, second := twoDigits(text[11:]), twoDigits(text[14:]), 0
	if !ok || hour < 0 || minute < 0 {
		return t, notTime
	}
	rest := text[16:]
	if len(rest) >= 3 && rest[0] == ':' {
		if second = twoDigits(rest[1:]); second < 0 {
			return t, notTime
		}
		rest = rest[3:]
		if len(rest) > 0 && rest[0] == '.' {
			end := digits(rest, 1)
			if end == 1 {
				return t, notTime
			}
			t.fraction = rest[1:end]
			rest = rest[end:]
		}
	}
	if t.offset, t.hasOffset, ok = parseOffset(rest); !ok {
		return t, notTime
	}
	// A leap second (60) has no place in ClickHouse's count of seconds.
	if !exists || hour > 23 || minute > 59 || second > 59 || t.offset < -maxOffset || t.offset > maxOffset {
		return t, noSuchTime
	}
	t.local = days*86400 + int64(hour*3600+minute*60+second)
	return t, isTime
}

// parseOffset reads Z, ±hh:mm, ±hhmm, ±hh or nothing.
func parseOffset(text []byte) (seconds int64, has, ok bool) {
	if len(text) == 0 {
		return 0, false, true
	}
	if len(text) == 1 {
		return 0, true, text[0]|0x20 == 'z'
	}
	hours, minutes := 0, 0
	switch {
	case text[0] != '+' && text[0] != '-':
		return 0, false, false
	case len(text) == 3:
		hours = twoDigits(text[1:])
	case len(text) == 5:
		hours, minutes = twoDigits(text[1:]), twoDigits(text[3:])
	case len(text) == 6 && text[3] == ':':
		hours, minutes = twoDigits(text[1:]), twoDigits(text[4:])
	default:
		return 0, false, false
	}
	if hours < 0 || minutes < 0 {
		return 0, false, false
	}
	if minutes > 59 {
		hours = 99 // no such offset
	}
	seconds = int64(hours*3600 + minutes*60)
	if text[0] == '-' {
		seconds = -seconds
	}
	return seconds, true, true
}
