package mapping

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/chprojector/projector/chschema"
)

// exactly returns text times 10^scale by math/big: the integer, rounded half
// to even, and whether that lost anything.
func exactly(text string, scale int) (n *big.Int, lost bool) {
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		panic(text)
	}
	power := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(scale, -scale))), nil))
	if scale >= 0 {
		r.Mul(r, power)
	} else {
		r.Quo(r, power)
	}
	if r.IsInt() {
		return new(big.Int).Set(r.Num()), false
	}
	floor := new(big.Int)
	floor.Div(r.Num(), r.Denom()) // Euclidean: towards negative infinity, as the denominator is positive
	rest := new(big.Rat).Sub(r, new(big.Rat).SetInt(floor))
	switch c := rest.Cmp(big.NewRat(1, 2)); {
	case c > 0 || c == 0 && floor.Bit(0) == 1:
		floor.Add(floor, big.NewInt(1))
	}
	return floor, true
}

func toBig(w wide, negative bool) *big.Int {
	n, _ := new(big.Int).SetString(string(appendWide(nil, w, false)), 10)
	if negative {
		n.Neg(n)
	}
	return n
}

// checkScaled compares scaled with math/big for one JSON number.
func checkScaled(t interface{ Fatalf(string, ...any) }, text string, scale int) {
	want, inexact := exactly(text, scale)
	limit := new(big.Int).Lsh(big.NewInt(1), 256)
	for _, halfEven := range []bool{false, true} {
		w, negative, out := scaled([]byte(text), scale, halfEven)
		switch {
		case new(big.Int).Abs(want).Cmp(limit) >= 0:
			if out != overflow && !(inexact && !halfEven && out == lost) {
				t.Fatalf("%s at scale %d: outcome %d, but it needs more than 256 bits", text, scale, out)
			}
		case inexact && !halfEven:
			if out != lost {
				t.Fatalf("%s at scale %d: outcome %d, but digits are lost", text, scale, out)
			}
		case out != exact || toBig(w, negative).Cmp(want) != 0:
			t.Fatalf("%s at scale %d (half even %t): %s, outcome %d, want %s", text, scale, halfEven, toBig(w, negative), out, want)
		}
	}
}

func FuzzDecimal(f *testing.F) {
	for _, text := range []string{
		"0", "-0", "2.31", "2.310", "6E+2", "-0.0005", "64.32", "1e-3", "0.0015", "0.0025", "12.5", "9007199254740993", "18446744073709551616", "1e76", "1e-76",
		"115792089237316195423570985008687907853269984665640564039457584007913129639935", "115792089237316195423570985008687907853269984665640564039457584007913129639936", "0.5", "1.5", "0.05e1", "999e-3", "0.00000000000000000000000000000000000000005e40",
	} {
		f.Add(text, 0)
		f.Add(text, 3)
		f.Add(text, 20)
		f.Add(text, -3)
	}
	f.Fuzz(func(t *testing.T, text string, scale int) {
		end, ok := scanNumber([]byte(text), 0)
		if !ok || end != len(text) || scale < -9 || scale > 76 || len(text) > 300 {
			return
		}
		if _, exponent, found := strings.Cut(strings.ToLower(text), "e"); found && len(strings.TrimLeft(exponent, "+-0")) > 3 {
			return // math/big would write it out
		}
		checkScaled(t, text, scale)
		checkDecimalColumns(t, text)
	})
}

// checkDecimalColumns compares what columns of every width hold with math/big.
func checkDecimalColumns(t interface{ Fatalf(string, ...any) }, text string) {
	for _, c := range decimalColumns {
		want, inexact := exactly(text, c.typ.Scale)
		var s scanner
		s.begin([]byte(text + ","))
		c.truncate(0)
		fits := new(big.Int).Abs(want).Cmp(toBig(c.limit, false)) < 0
		if ok := c.appendJSON(&s); ok != (fits && !inexact) {
			t.Fatalf("%s in %s: accepted %t, fits %t, inexact %t", text, c.typ, ok, fits, inexact)
		} else if !ok {
			continue
		}
		if s.pos != len(text) {
			t.Fatalf("%s in %s: read %d bytes", text, c.typ, s.pos)
		}
		got, ok := new(big.Rat).SetString(string(c.appendText(nil, 0, false)))
		if wantValue, _ := new(big.Rat).SetString(text); !ok || got.Cmp(wantValue) != 0 {
			t.Fatalf("%s in %s reads back as %s", text, c.typ, got)
		}
	}
}

var decimalColumns = func() (columns []*decimalColumn) {
	for p := 1; p <= 76; p += 5 {
		for _, s := range []int{0, p / 3, p} {
			columns = append(columns, newDecimalColumn(decimalType(p, s), &options{}))
		}
	}
	return append(columns, newDecimalColumn(decimalType(9, 2), &options{}), newDecimalColumn(decimalType(18, 3), &options{}), newDecimalColumn(decimalType(38, 10), &options{}), newDecimalColumn(decimalType(76, 20), &options{}))
}()

func drawNumber(t *rapid.T) string {
	text := rapid.SampledFrom([]string{"", "-"}).Draw(t, "sign") + rapid.StringMatching(`0|[1-9][0-9]{0,24}|[1-9][0-9]{60,80}`).Draw(t, "whole")
	if rapid.Bool().Draw(t, "decimals") {
		text += "." + rapid.StringMatching(`[0-9]{1,30}|0{1,20}5|[0-9]0{1,60}|[0-9]{3}50{0,9}1?`).Draw(t, "fraction")
	}
	if rapid.IntRange(0, 2).Draw(t, "exponent") == 0 {
		text += rapid.SampledFrom([]string{"e", "E", "e+", "E-", "e-"}).Draw(t, "e") + fmt.Sprint(rapid.IntRange(0, 90).Draw(t, "power"))
	}
	return text
}

func TestScaledIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := drawNumber(t)
		checkScaled(t, text, rapid.IntRange(-9, 76).Draw(t, "scale"))
		checkDecimalColumns(t, text)
	})
}

// Integers of every size hold exactly the integers of their range.
func TestIntegersAreExact(t *testing.T) {
	columns := map[string]*integerColumn{}
	for _, bits := range []int{8, 16, 32, 64, 128, 256} {
		for _, kind := range []string{"Int", "UInt"} {
			name := fmt.Sprint(kind, bits)
			columns[name] = newIntegerColumn(mustType(t, name))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := drawNumber(t)
		want, inexact := exactly(text, 0)
		for name, c := range columns {
			bits := uint(c.width * 8)
			low, high := new(big.Int), new(big.Int).Lsh(big.NewInt(1), bits)
			if c.signed {
				high.Lsh(big.NewInt(1), bits-1)
				low.Neg(high)
			}
			var s scanner
			s.begin([]byte(text + "}"))
			c.truncate(0)
			fits := want.Cmp(low) >= 0 && want.Cmp(high) < 0
			if ok := c.appendJSON(&s); ok != (fits && !inexact) {
				t.Fatalf("%s in %s: accepted %t, fits %t, inexact %t", text, name, ok, fits, inexact)
			} else if ok && string(c.appendText(nil, 0, false)) != want.String() {
				t.Fatalf("%s in %s reads back as %s", text, name, c.appendText(nil, 0, false))
			}
		}
	})
}

func decimalType(precision, scale int) chschema.Type {
	return chschema.Type{Kind: chschema.KindDecimal, Precision: precision, Scale: scale}
}
