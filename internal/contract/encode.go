package contract

import (
	"crypto/md5" //nolint:gosec // no secret: all three databases have it, and nobody forges rows against himself
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/chprojector/projector/chschema"
)

// prefix is the version of the canonical form.
const prefix = "p1;"

// Value is one value as text: what a JSON event or a SQL client shows of it.
type Value struct {
	Null bool
	Text string
}

// appendText appends a field of the canonical form.
func appendText(dst []byte, text string) []byte {
	dst = append(dst, 'V')
	dst = strconv.AppendInt(dst, int64(len(text)), 10)
	dst = append(dst, ':')
	dst = append(dst, text...)
	return append(dst, ';')
}

// Encode appends the canonical fields of a row, in the order of the contract.
// A value that is not of its class is an error that names the column.
func (c *Contract) Encode(dst []byte, values []Value) ([]byte, error) {
	if len(values) != len(c.fields) {
		return dst, fmt.Errorf("%d values for %d fields", len(values), len(c.fields))
	}
	for i := range c.fields {
		var err error
		if dst, err = c.fields[i].encode(dst, values[i]); err != nil {
			return dst, fmt.Errorf("%s: %w", c.fields[i].Column, err)
		}
	}
	return dst, nil
}

func (f *field) encode(dst []byte, v Value) ([]byte, error) {
	if v.Null {
		return append(dst, 'N', ';'), nil
	}
	text, err := f.canonical(v.Text)
	if err != nil {
		return dst, err
	}
	return appendText(dst, text), nil
}

// canonical is the one text of a value.
func (f *field) canonical(text string) (string, error) {
	switch f.Class {
	case Integer:
		return unscaled(text, 0)
	case Decimal:
		return unscaled(text, f.Scale)
	case Instant:
		return f.instant(text)
	case Bool:
		switch strings.ToLower(text) {
		case "1", "true":
			return "1", nil
		case "0", "false":
			return "0", nil
		}
		return "", fmt.Errorf("%q is no bool", text)
	case String:
		if f.trimsZeros() {
			text = strings.TrimRight(text, "\x00")
		}
	case Enum:
	}
	return text, nil
}

// trimsZeros: FixedString fills up with zero bytes, so they carry no meaning on
// either side.
func (f *field) trimsZeros() bool { return f.kind.Kind == chschema.KindFixedString }

// unscaled reads a decimal notation, with or without an exponent, as an exact
// count of the smallest unit at a scale.
func unscaled(text string, scale int) (string, error) {
	mantissa, exponent := text, 0
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		var err error
		if exponent, err = strconv.Atoi(text[i+1:]); err != nil || exponent > 1000 || exponent < -1000 {
			return "", fmt.Errorf("%q is no number", text)
		}
		mantissa = text[:i]
	}
	whole, decimals, _ := strings.Cut(mantissa, ".")
	n, ok := new(big.Int).SetString(whole+decimals, 10)
	if !ok || strings.ContainsAny(decimals, "+-_") || strings.Contains(whole, "_") {
		return "", fmt.Errorf("%q is no number", text)
	}
	shift := scale + exponent - len(decimals)
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(shift, -shift))), nil)
	if shift >= 0 {
		return n.Mul(n, power).String(), nil
	}
	if _, rest := n.QuoRem(n, power, new(big.Int)); rest.Sign() != 0 {
		return "", fmt.Errorf("%s has more than %d decimals", text, scale)
	}
	return n.String(), nil
}

// units are how many microseconds a number in an event stands for, as a
// fraction.
var units = map[string][2]int64{"s": {1e6, 1}, "ms": {1e3, 1}, "us": {1, 1}, "ns": {1, 1e3}}

// instant reads a time of day with date: with a zone, or on the wall of the
// contract's; or a number in the contract's unit.
func (f *field) instant(text string) (string, error) {
	if unit, ok := units[f.Unit]; ok && strings.Trim(text, "+-0123456789") == "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return "", fmt.Errorf("%q is no instant", text)
		}
		return f.cut(floorDiv(n*unit[0], unit[1])), nil
	}
	normal := strings.Replace(text, "T", " ", 1)
	for _, layout := range []string{"2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05 -07:00"} {
		if t, err := time.Parse(layout, normal); err == nil {
			return f.cut(t.UnixMicro()), nil
		}
	}
	for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02"} {
		t, err := time.Parse(layout, normal)
		if err != nil {
			continue
		}
		return f.cut(t.UnixMicro() - f.zone.offset(t.Unix())*1e6), nil
	}
	return "", fmt.Errorf("%q is no instant", text)
}

// cut drops what the contract's precision does not look at, towards the past as
// the digits of a clock do.
func (f *field) cut(micros int64) string {
	unit := f.grain()
	return strconv.FormatInt(floorDiv(micros, unit)*unit, 10)
}

// grain is the contract's precision in microseconds.
func (f *field) grain() int64 {
	grain := int64(1e6)
	for range f.Precision {
		grain /= 10
	}
	return grain
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// Digest is the digest of one row.
type Digest [md5.Size]byte

// Halves are the two numbers that are summed over the rows of a bucket.
func (d Digest) Halves() (high, low uint64) {
	return binary.BigEndian.Uint64(d[:8]), binary.BigEndian.Uint64(d[8:])
}

// Sum is the digest of canonical fields.
func Sum(fields string) Digest {
	return md5.Sum(append([]byte(prefix), fields...)) //nolint:gosec // see the import
}

// SumVersion is the digest of what the level "versions" compares.
func SumVersion(id string, version uint64, deleted bool) Digest {
	text := appendText([]byte(id), strconv.FormatUint(version, 10))
	if deleted {
		text = appendText(text, "1")
	} else {
		text = appendText(text, "0")
	}
	return Sum(string(text))
}

// Bucket is the bucket of a record among n.
func Bucket(id string, n uint32) uint32 { return crc32.ChecksumIEEE([]byte(id)) % n }

// ID takes the canonical identity out of canonical fields.
func (c *Contract) ID(fields string) (string, error) {
	parts, err := Split(fields)
	if err != nil {
		return "", err
	}
	if len(parts) != len(c.fields) {
		return "", fmt.Errorf("%d fields where the contract has %d", len(parts), len(c.fields))
	}
	var b strings.Builder
	for _, i := range c.identity {
		b.WriteString(parts[i])
	}
	return b.String(), nil
}

// Split takes canonical fields apart; each part keeps its own canonical form.
func Split(fields string) (parts []string, err error) {
	for len(fields) > 0 {
		n, err := first(fields)
		if err != nil {
			return nil, err
		}
		parts, fields = append(parts, fields[:n]), fields[n:]
	}
	return parts, nil
}

var errForm = errors.New("not of the canonical form")

// first returns the length of the first field.
func first(s string) (int, error) {
	if strings.HasPrefix(s, "N;") {
		return 2, nil
	}
	colon := strings.IndexByte(s, ':')
	if s[0] != 'V' || colon < 0 {
		return 0, fmt.Errorf("%.40q: %w", s, errForm)
	}
	n, err := strconv.Atoi(s[1:colon])
	if err != nil || n < 0 || n > len(s)-colon-2 || s[colon+1+n] != ';' {
		return 0, fmt.Errorf("%.40q: %w", s, errForm)
	}
	return colon + n + 2, nil
}

// Text shows one canonical field to a person: null as NULL, and a value as its
// canonical text.
func Text(part string) string {
	if part == "N;" || part == "" {
		return "NULL"
	}
	return part[strings.IndexByte(part, ':')+1 : len(part)-1]
}

// Show shows one canonical field in the notation of its class: a decimal with
// its point, an instant as a date.
func (c *Contract) Show(i int, part string) string {
	text, f := Text(part), &c.fields[i]
	if part == "N;" || part == "" {
		return text
	}
	switch f.Class {
	case Decimal:
		return point(text, f.Scale)
	case Instant:
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return time.UnixMicro(n).UTC().Format("2006-01-02T15:04:05.999999Z")
		}
	case Integer, String, Bool, Enum:
	}
	return text
}

// point puts the decimal point into an unscaled integer.
func point(digits string, scale int) string {
	if scale == 0 {
		return digits
	}
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	if missing := scale + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	return sign + digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
}

// Identity shows a canonical identity to a person: its values in the notation of
// their classes, with blanks in between.
func (c *Contract) Identity(id string) string {
	values, err := c.Values(id)
	if err != nil {
		return Identity(id)
	}
	return strings.Join(values, " ")
}

// Identity is [Contract.Identity] where there is no contract.
func Identity(id string) string {
	parts, err := Split(id)
	if err != nil {
		return id
	}
	for i, p := range parts {
		parts[i] = Text(p)
	}
	return strings.Join(parts, " ")
}
