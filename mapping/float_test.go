package mapping

import (
	"fmt"
	"strings"
	"testing"
)

// strconv loses count of the digits before the point and of the exponent's. A
// number that is 1 must not become another.
func TestFloatOfManyDigits(t *testing.T) {
	zeros := strings.Repeat("0", 200_000)
	for _, number := range []string{"0." + zeros + "1e200001", "-0." + zeros + "1e200001", "1" + zeros + "e-200000", "1" + zeros[:1000] + "E-1000", "1" + zeros[:800] + ".0e-800", "1" + zeros[:690] + "e-690"} {
		for _, form := range []string{`{"id":1,"version":1,"x":%s}`, `{"id":1,"version":1,"x":"%s"}`} {
			for _, typ := range []string{"Float64", "Float32"} {
				rows, err := one(t, Column{Name: "x", From: "x", Type: mustType(t, typ)}, fmt.Sprintf(form, number))
				if err == nil && strings.TrimPrefix(rows.Format(0, "x"), "-") != "1" {
					t.Errorf("%s…: stored as %s in %s", number[:8], rows.Format(0, "x"), typ)
				}
			}
		}
	}
	for number, want := range map[string]string{"1e-99999": "0", "0." + strings.Repeat("0", 990) + "1": "0", "1" + strings.Repeat("0", 300): "1e300", "1" + zeros[:300] + "." + zeros[:2000] + "1": "1e300", "1." + zeros[:2000] + "1": "1"} {
		rows, err := one(t, Column{Name: "x", From: "x", Type: mustType(t, "Float64")}, `{"id":1,"version":1,"x":`+number+`}`)
		if err != nil || rows.Format(0, "x") != want {
			t.Errorf("%s: %s, %v", number, rows.Format(0, "x"), err)
		}
	}
}
