package fitness

import "strconv"

// Event is the complete state of one fitness result at one version.
type Event struct {
	DataID    uint64 // what the record is
	DetectID  uint64 // the campaign; never changes for a record
	UserID    uint64
	ProjectID uint32 // the discipline, 1..8
	Version   uint64 // 1 for the first state of the record
	Result    int64  // in thousandths of Unit
	Decimals  uint8  // how many decimals of Result are written, 0..3
	Unit      string
	IsDeleted bool
}

// AppendKey appends the event's Kafka key, the decimal digits of its data id, so that all versions of one record meet
// in one partition.
func (e *Event) AppendKey(dst []byte) []byte { return strconv.AppendUint(dst, e.DataID, 10) }

// AppendJSON appends the event as the platform publishes it, about 170 bytes, without the closing brace's newline.
func (e *Event) AppendJSON(dst []byte) []byte { return append(e.appendFields(dst), '}') }

// appendFields is AppendJSON without the closing brace.
func (e *Event) appendFields(dst []byte) []byte {
	dst = append(dst, `{"eventId":"fitness-result-`...)
	dst = strconv.AppendUint(dst, e.DataID, 10)
	dst = append(dst, "-v"...)
	dst = strconv.AppendUint(dst, e.Version, 10)
	dst = append(dst, `","dataId":`...)
	dst = strconv.AppendUint(dst, e.DataID, 10)
	dst = append(dst, `,"detectId":`...)
	dst = strconv.AppendUint(dst, e.DetectID, 10)
	dst = append(dst, `,"userId":`...)
	dst = strconv.AppendUint(dst, e.UserID, 10)
	dst = append(dst, `,"projectId":`...)
	dst = strconv.AppendUint(dst, uint64(e.ProjectID), 10)
	dst = append(dst, `,"version":`...)
	dst = strconv.AppendUint(dst, e.Version, 10)
	dst = append(dst, `,"result":`...)
	dst = appendResult(dst, e.Result, e.Decimals)
	dst = append(dst, `,"unit":"`...)
	dst = append(dst, e.Unit...)
	dst = append(dst, `","isDeleted":`...)
	dst = strconv.AppendBool(dst, e.IsDeleted)
	return append(dst, `,"schemaVersion":1`...)
}

// appendResult writes a count of thousandths with the given decimals, rounded towards zero. Whole hundreds without
// decimals appear as 6E+2, which is how Java's BigDecimal prints 600 after stripTrailingZeros.
func appendResult(dst []byte, thousandths int64, decimals uint8) []byte {
	if thousandths < 0 {
		dst, thousandths = append(dst, '-'), -thousandths
	}
	whole, rest := thousandths/1000, thousandths%1000
	if decimals == 0 && whole != 0 && whole < 10_000 && whole%100 == 0 {
		exponent := int64(2)
		for whole /= 100; whole%10 == 0; whole /= 10 {
			exponent++
		}
		return strconv.AppendInt(append(strconv.AppendInt(dst, whole, 10), "E+"...), exponent, 10)
	}
	dst = strconv.AppendInt(dst, whole, 10)
	if decimals == 0 {
		return dst
	}
	digits := [4]byte{'.', byte('0' + rest/100), byte('0' + rest/10%10), byte('0' + rest%10)}
	return append(dst, digits[:1+min(decimals, 3)]...)
}
