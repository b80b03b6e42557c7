package mapping

import "strconv"

// daysFromCivil returns the days since 1970-01-01 of a valid date of the
// Gregorian calendar, from year 1 on (Howard Hinnant's algorithm).
func daysFromCivil(year, month, day int) int64 {
	if month <= 2 {
		year--
	}
	era := year / 400
	yoe := year - era*400
	mp := (month + 9) % 12
	doy := (153*mp+2)/5 + day - 1
	doe := yoe*365 + yoe/4 - yoe/100 + doy
	return int64(era)*146097 + int64(doe) - 719468
}

// civilFromDays is the inverse of daysFromCivil.
func civilFromDays(days int64) (year, month, day int) {
	z := days + 719468
	era := z / 146097
	doe := z - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	day = int(doy - (153*mp+2)/5 + 1)
	month = int(mp%12) + 3
	if mp >= 10 {
		month = int(mp) - 9
	}
	year = int(yoe + era*400)
	if month <= 2 {
		year++
	}
	return year, month, day
}

func daysInMonth(year, month int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

// twoDigits reads two decimal digits, -1 if they are none.
func twoDigits(text []byte) int {
	a, b := text[0]-'0', text[1]-'0'
	if a > 9 || b > 9 {
		return -1
	}
	return int(a)*10 + int(b)
}

// parseDate reads YYYY-MM-DD, and reports whether the text has that form and
// whether that day exists.
func parseDate(text []byte) (days int64, form, exists bool) {
	if len(text) != len("2006-01-02") || text[4] != '-' || text[7] != '-' {
		return 0, false, false
	}
	century, years, month, day := twoDigits(text), twoDigits(text[2:]), twoDigits(text[5:]), twoDigits(text[8:])
	if century < 0 || years < 0 || month < 0 || day < 0 {
		return 0, false, false
	}
	year := century*100 + years
	if year == 0 || month < 1 || month > 12 || day < 1 || day > daysInMonth(year, month) {
		return 0, true, false
	}
	return daysFromCivil(year, month, day), true, true
}

func appendPadded(dst []byte, v int64, width int) []byte {
	for limit := pow10s[width-1]; limit > 1 && uint64(v) < limit; limit /= 10 {
		dst = append(dst, '0')
	}
	return strconv.AppendInt(dst, v, 10)
}

func appendDate(dst []byte, days int64) []byte {
	year, month, day := civilFromDays(days)
	dst = append(appendPadded(dst, int64(year), 4), '-')
	dst = append(appendPadded(dst, int64(month), 2), '-')
	return appendPadded(dst, int64(day), 2)
}
