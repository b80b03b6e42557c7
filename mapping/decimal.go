package mapping

import (
	"encoding/binary"
	"math/bits"
)

// wide is an unsigned integer of 256 bits, its least significant word first.
type wide [4]uint64

// mulAdd sets w to w*m+a and reports whether the result fits.
func (w *wide) mulAdd(m, a uint64) bool {
	carry := a
	for i := range w {
		hi, lo := bits.Mul64(w[i], m)
		var c uint64
		w[i], c = bits.Add64(lo, carry, 0)
		carry = hi + c
	}
	return carry == 0
}

// less reports whether w < u.
func (w *wide) less(u *wide) bool {
	for i := len(w) - 1; i >= 0; i-- {
		if w[i] != u[i] {
			return w[i] < u[i]
		}
	}
	return false
}

func (w *wide) isZero() bool { return w[0]|w[1]|w[2]|w[3] == 0 }

// negate sets w to its two's complement.
func (w *wide) negate() {
	carry := uint64(1)
	for i := range w {
		w[i], carry = bits.Add64(^w[i], 0, carry)
	}
}

// appendBytes appends the size least significant bytes of w, little-endian.
func (w *wide) appendBytes(dst []byte, size int) []byte {
	switch size {
	case 1:
		return append(dst, byte(w[0]))
	case 2:
		return binary.LittleEndian.AppendUint16(dst, uint16(w[0]))
	case 4:
		return binary.LittleEndian.AppendUint32(dst, uint32(w[0]))
	}
	for i := range size / 8 {
		dst = binary.LittleEndian.AppendUint64(dst, w[i])
	}
	return dst
}

// readWide is the inverse of appendBytes; signed values are sign-extended.
func readWide(src []byte, signed bool) (w wide) {
	fill := byte(0)
	if signed && src[len(src)-1]&0x80 != 0 {
		fill = 0xFF
	}
	for i := range 32 {
		b := fill
		if i < len(src) {
			b = src[i]
		}
		w[i/8] |= uint64(b) << (i % 8 * 8)
	}
	return w
}

// pow10 returns 10^n for n of at most 77.
func pow10(n int) wide {
	w := wide{1}
	for range n {
		w.mulAdd(10, 0)
	}
	return w
}

var pow10s = [...]uint64{
	1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
}

// outcome says how exactly a number became an integer.
type outcome uint8

const (
	exact    outcome = iota
	lost             // the number has digits below the scale
	overflow         // the number needs more than 256 bits
)

// maxExponent is beyond every exponent that matters: a text of more than a
// billion digits is no event.
const maxExponent = 1 << 30

// scaled returns the JSON number in text times 10^scale as an integer: its
// magnitude and whether it is negative. If digits remain below the integer the
// outcome is lost; with halfEven they are rounded instead, ties to the even
// neighbour. It never goes through a floating-point number.
func scaled(text []byte, scale int, halfEven bool) (w wide, negative bool, out outcome) {
	i := 0
	if text[0] == '-' {
		negative = true
		i = 1
	}
	end, point, exponent := split(text, i)
	// Digits before position keep belong to the integer, those after it are
	// below; positions count from the first digit.
	keep := point + exponent + scale
	var low uint64 // the first 19 significant digits
	var count int
	var next, sticky bool // the digit after the last kept one is known; digits that are not zero follow it
	var after byte
	if keep < 0 {
		next = true
	}
	position := 0
	for ; i < end; i++ {
		c := text[i]
		if c == '.' {
			continue
		}
		d := c - '0'
		switch {
		case position >= keep:
			if !next {
				after, next = d, true
			} else if d != 0 {
				sticky = true
			}
		case count < 19:
			low = low*10 + uint64(d)
			if low != 0 {
				if count++; count == 19 {
					w[0] = low
				}
			}
		case !w.mulAdd(10, uint64(d)):
			return w, negative, overflow
		}
		position++
	}
	if count < 19 {
		w[0] = low
	}
	if !w.isZero() {
		for ; position < keep; position++ {
			if !w.mulAdd(10, 0) {
				return w, negative, overflow
			}
		}
	}
	if after == 0 && !sticky {
		return w, negative, exact
	}
	if !halfEven {
		return w, negative, lost
	}
	if after > 5 || after == 5 && (sticky || w[0]&1 == 1) {
		if !w.mulAdd(1, 1) {
			return w, negative, overflow
		}
	}
	return w, negative, exact
}

// split finds the parts of a JSON number whose first digit is text[i]: where
// its digits end, how many of them stand before the point, and the exponent.
func split(text []byte, i int) (end, point, exponent int) {
	first := i
	end = digits(text, i)
	point = end - first
	if end < len(text) && text[end] == '.' {
		end = digits(text, end+1)
	}
	if end == len(text) {
		return end, point, 0
	}
	i = end + 1 // past the e
	negative := text[i] == '-'
	if negative || text[i] == '+' {
		i++
	}
	for ; i < len(text); i++ {
		exponent = min(exponent*10+int(text[i]-'0'), maxExponent)
	}
	if negative {
		exponent = -exponent
	}
	return end, point, exponent
}
