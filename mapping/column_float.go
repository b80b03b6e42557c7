package mapping

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"
	"strings"
)

// floatColumn holds Float32 or Float64. A number becomes the nearest value,
// as IEEE 754 has it; it must be finite. NaN and infinities are no JSON
// numbers and are refused as texts too.
type floatColumn struct {
	fixed
}

func (c *floatColumn) appendJSON(s *scanner) bool {
	start := s.pos
	text, ok := s.numeral("a number")
	if !ok {
		return false
	}
	if tooLong(text) {
		return s.fail(ClassFormat, start, "a number of so many digits is written without an exponent")
	}
	v, err := strconv.ParseFloat(view(text), c.width*8)
	if err != nil {
		return s.fail(ClassRange, start, "out of the range of Float"+strconv.Itoa(c.width*8))
	}
	if c.width == 4 {
		c.data = binary.LittleEndian.AppendUint32(c.data, math.Float32bits(float32(v)))
	} else {
		c.data = binary.LittleEndian.AppendUint64(c.data, math.Float64bits(v))
	}
	return true
}

// appendText follows the server: the shortest text that reads back the same,
// with an exponent from 1e21 and below 1e-6.
func (c *floatColumn) appendText(dst []byte, i int, _ bool) []byte {
	v, low := 0.0, 1e-6
	if c.width == 4 {
		v = float64(math.Float32frombits(binary.LittleEndian.Uint32(c.at(i))))
		low = float64(float32(1e-6))
	} else {
		v = math.Float64frombits(binary.LittleEndian.Uint64(c.at(i)))
	}
	if a := math.Abs(v); a == 0 || a >= low && a < 1e21 {
		return strconv.AppendFloat(dst, v, 'f', -1, c.width*8)
	}
	text := strconv.FormatFloat(v, 'e', -1, c.width*8)
	text = strings.Replace(strings.Replace(text, "e+", "e", 1), "e-0", "e-", 1)
	return append(dst, text...)
}

// tooLong reports a number that strconv may read wrongly: it counts at most 800
// digits before the point, and the exponent up to five of its own, so that 1
// followed by 1000 zeros and e-1000 would become 1e-201. No float needs so many.
func tooLong(text []byte) bool {
	const enough = 700
	return len(text) > enough && bytes.ContainsAny(text, "eE")
}
