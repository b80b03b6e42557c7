package config

import (
	"fmt"
	"io"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Redacted stands in for a secret wherever a configuration is shown.
const Redacted = "(redacted)"

// Duration is a length of time that was written with its unit. A bare number
// is refused, because half of the programs a reader knows take it for seconds
// and Go takes it for nanoseconds.
type Duration time.Duration

// Of is d as the standard library's type.
func (d Duration) Of() time.Duration { return time.Duration(d) }

// ParseDuration reads a duration such as "20s", "1m30s" or "250ms". A number
// without a unit and a negative duration are errors.
func ParseDuration(text string) (Duration, error) {
	if isNumber(text) {
		return 0, fmt.Errorf("%q has no unit; write for example %ss (units: ms, s, m, h)", text, text)
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a duration; write a number with its unit, for example 20s or 1m30s (units: ms, s, m, h)", text)
	case d < 0:
		return 0, fmt.Errorf("%q is negative; a duration here starts at 0s", text)
	}
	return Duration(d), nil
}

// String writes d so that [ParseDuration] reads the same value again: "1m30s".
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Size is a number of bytes that was written with its unit.
type Size int64

var (
	sizePattern = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]+)$`)
	sizeUnits   = map[string]int64{
		"B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
		"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
	}
)

// ParseSize reads a size such as "32MiB", "512KiB" or "1.5GB". A number
// without a unit is an error, and so is a fraction of a byte.
func ParseSize(text string) (Size, error) {
	if isNumber(text) {
		return 0, fmt.Errorf("%q has no unit; write for example %sB or 32MiB (units: B, KiB, MiB, GiB, kB, MB, GB)", text, text)
	}
	m := sizePattern.FindStringSubmatch(text)
	if m == nil || sizeUnits[m[2]] == 0 {
		return 0, fmt.Errorf("%q is not a size; write a number with its unit, for example 32MiB (units: B, KiB, MiB, GiB, kB, MB, GB)", text)
	}
	n, ok := new(big.Rat).SetString(m[1])
	if !ok {
		return 0, fmt.Errorf("%q is not a size; write for example 32MiB", text)
	}
	n.Mul(n, new(big.Rat).SetInt64(sizeUnits[m[2]]))
	switch {
	case !n.IsInt():
		return 0, fmt.Errorf("%q is not a whole number of bytes", text)
	case !n.Num().IsInt64():
		return 0, fmt.Errorf("%q is larger than any machine's memory; write for example 32MiB", text)
	}
	return Size(n.Num().Int64()), nil
}

// String writes s so that [ParseSize] reads the same value again, in the
// largest binary unit that divides it: "32MiB".
func (s Size) String() string {
	for _, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if n := sizeUnits[unit]; s != 0 && int64(s)%n == 0 {
			return strconv.FormatInt(int64(s)/n, 10) + unit
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// isNumber tells a number that lacks its unit from any other text.
func isNumber(text string) bool {
	_, err := strconv.ParseFloat(text, 64)
	return err == nil
}

// Secret is a text that no log line, error or printed configuration may show.
// Every way of formatting it yields [Redacted]; only Reveal gives the text.
type Secret string

// Reveal is the secret itself, for the one call that authenticates.
func (s Secret) Reveal() string { return string(s) }

// String is [Redacted], or nothing for an empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return Redacted
}

// Format keeps the secret out of every verb, %#v and %x included.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText keeps the secret out of JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
