package mapping

import (
	"slices"
	"strings"
	"testing"
)

func TestErrorText(t *testing.T) {
	for want, e := range map[string]*Error{
		"column result: field payload.result: 2.3105: more than 3 decimals (precision)": {Class: ClassPrecision, Column: "result", Path: "payload.result", Value: "2.3105", Reason: "more than 3 decimals"},
		"column unit: null: null where a string was expected (null)":                    {Class: ClassNull, Column: "unit", Path: "unit", Value: "null", Reason: "null where a string was expected"},
		"a tombstone (tombstone)": {Class: ClassTombstone, Reason: "a tombstone"},
	} {
		if got := e.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for text, want := range map[string]string{
		strings.Repeat("x", 200): strings.Repeat("x", 200), strings.Repeat("x", 201): strings.Repeat("x", 200) + "…",
		strings.Repeat("x", 199) + "é": strings.Repeat("x", 199) + "…", strings.Repeat("x", 198) + "é": strings.Repeat("x", 198) + "é",
		strings.Repeat("x", 198) + "🏃": strings.Repeat("x", 198) + "…", "\xff\xfe": "\uFFFD", strings.Repeat("\x80", 300): "\uFFFD…",
	} {
		if got := excerpt([]byte(text)); got != want {
			t.Errorf("excerpt of %q is %q, want %q", text, got, want)
		}
	}
}

func TestEveryClassIsListed(t *testing.T) {
	if n := len(Classes()); n != 14 {
		t.Errorf("%d classes", n)
	}
	for i, c := range Classes() {
		if slices.Contains(Classes()[:i], c) || c == "" {
			t.Errorf("class %q is listed twice or empty", c)
		}
	}
}
