package fitness

import "strconv"

// appendDetails appends about n bytes of further members, beginning with a comma: what a real platform sends along and
// this projection does not ask for. Nested objects and arrays repeat names the mapping knows, and texts hold
// characters beyond ASCII, as real ones do. It appends nothing when n is too small for anything.
func appendDetails(dst []byte, n int, random uint64) []byte {
	end := len(dst) + n
	if n < len(`,"remark":""`) {
		return dst
	}
	if n > 400 {
		dst = append(dst, `,"school":{"id":`...)
		dst = strconv.AppendUint(dst, 100+random%900, 10)
		dst = append(dst, `,"name":"Schule am Königsplatz","grade":"`...)
		dst = strconv.AppendUint(dst, 1+random>>16%12, 10)
		dst = append(dst, `","class":"b"},"device":{"model":"FT-200","firmware":"4.1.7","battery":0.`...)
		dst = strconv.AppendUint(dst, 10+random>>24%90, 10)
		dst = append(dst, `},"attempts":[`...)
		const longest = 140
		for i := uint64(1); len(dst)+longest+len(`],"remark":""`) < end || i == 1; i++ {
			random = mix(random)
			dst = appendAttempt(dst, i, random)
			dst = append(dst, ',')
		}
		dst[len(dst)-1] = ']'
	}
	dst = append(dst, `,"remark":"`...)
	const text = "measured twice; the second attempt counts — wind from the west, dry ground, no complaints. "
	for len(dst)+len(text)+1 <= end {
		dst = append(dst, text...)
	}
	for len(dst)+1 < end {
		dst = append(dst, '.')
	}
	return append(dst, '"')
}

// appendAttempt appends one element of attempts, at most 140 bytes with its comma.
func appendAttempt(dst []byte, number, random uint64) []byte {
	dst = append(dst, `{"attempt":`...)
	dst = strconv.AppendUint(dst, number, 10)
	dst = append(dst, `,"result":`...)
	dst = strconv.AppendUint(dst, 1+random%9, 10)
	dst = append(dst, '.')
	dst = strconv.AppendUint(dst, 10+random>>8%90, 10)
	dst = append(dst, `,"unit":"m","judge":"j-`...)
	dst = strconv.AppendUint(dst, 10+random>>16%90, 10)
	dst = append(dst, `","measuredAt":"2026-05-`...)
	dst = strconv.AppendUint(dst, 10+random>>24%20, 10)
	dst = append(dst, "T09:"...)
	dst = strconv.AppendUint(dst, 10+random>>32%50, 10)
	dst = append(dst, `:31.250Z","valid":`...)
	dst = strconv.AppendBool(dst, random>>40%8 != 0)
	return append(dst, '}')
}
