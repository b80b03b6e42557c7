package mapping

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// randomPlan returns a plan over some of the samples' types, and a valid event
// for it. Some columns lie within objects, and some have defaults.
func randomPlan(t testing.TB, random *rand.Rand) (*Plan, string) {
	t.Helper()
	spec := Spec{
		Identity: []string{"id"}, Version: "version", Strict: random.IntN(4) == 0, Generation: random.Uint32(),
		Columns: []Column{
			{Name: "id", From: "id", Type: mustType(t, "String")},
			{Name: "version", From: "head.version", Type: mustType(t, "UInt64")},
		},
	}
	if random.IntN(2) == 0 {
		spec.SchemaVersion = SchemaVersion{From: "head.schema", Accept: []int64{1, 2}}
	}
	event := `{"id":"a","head":{"version":1,"schema":2}`
	if spec.SchemaVersion.From == "" {
		event = `{"id":"a","head":{"version":1}`
	}
	all := samples()
	for i := range 1 + random.IntN(8) {
		s := all[random.IntN(len(all))]
		c := s.options
		c.Name = fmt.Sprintf("c%d", i)
		c.From, c.Type = c.Name, mustType(t, s.typ)
		value := s.values[random.IntN(len(s.values))]
		switch random.IntN(4) {
		case 0:
			c.From = "o" + c.Name + ".deep"
			event += fmt.Sprintf(`,"o%s":{"deep":%s}`, c.Name, value)
		case 1:
			c.Default = []byte(value)
			fallthrough
		default:
			event += fmt.Sprintf(`,"%s":%s`, c.Name, value)
		}
		spec.Columns = append(spec.Columns, c)
	}
	return mustCompile(t, spec), event + "}"
}

// A checker appends events to one batch and checks what must hold for every
// input: a row or nothing, an error that says where and why, and agreement
// with another JSON decoder on what is JSON.
type checker struct {
	plan   *Plan
	rows   *Rows
	before []byte // the batch, encoded
	after  []byte
}

func newChecker(plan *Plan) *checker {
	c := &checker{plan: plan, rows: plan.NewRows()}
	c.reset()
	return c
}

func (c *checker) reset() {
	c.rows.Reset()
	c.before = appendEncoded(c.before[:0], c.rows)
}

func (c *checker) append(t testing.TB, value []byte) error {
	t.Helper()
	rows, n, unknown := c.rows, c.rows.Len(), c.rows.UnknownFields()
	err := c.plan.Append(rows, value, Lineage{Topic: string(value[:min(len(value), 2)]), Offset: int64(n)})
	valid := jsontext.Value(value).IsValid()
	c.after = appendEncoded(c.after[:0], rows)
	for _, column := range rows.Columns() {
		if column.len() != rows.Len() {
			t.Fatalf("%q: column %s has %d values of %d", value, column.Name(), column.len(), rows.Len())
		}
	}
	same := bytes.Equal(c.before, c.after)
	c.before, c.after = c.after, c.before
	if err == nil {
		switch {
		case rows.Len() != n+1 || same: // at least the version is new bytes
			t.Fatalf("%q: no error, but %d rows became %d", value, n, rows.Len())
		case !valid:
			t.Fatalf("%q became a row, but is no JSON", value)
		}
		return nil
	}
	if rows.Len() != n || !same || rows.UnknownFields() != unknown {
		t.Fatalf("%q: refused with %v, but left a trace", value, err)
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("%q: %v is no Error", value, err)
	}
	if !slices.Contains(Classes(), e.Class) || e.Reason == "" || len(e.Value) > maxValue+len("…")+3*maxValue || len(e.Error()) > 4000 {
		t.Fatalf("%q: %+v", value, e)
	}
	switch broken := e.Class == ClassMalformed || e.Class == ClassEncoding || e.Class == ClassDuplicate || e.Class == ClassEmpty || e.Class == ClassTombstone; {
	case !valid && !broken:
		t.Fatalf("%q is no JSON, but the error is %v", value, e)
	case valid && broken && !strings.Contains(e.Reason, "deeper") && !strings.Contains(e.Reason, "in one Map"):
		t.Fatalf("%q is JSON, but the error is %v", value, e)
	}
	return err
}

// tokens are what hostile inputs are made of besides valid events.
var tokens = strings.Fields(`null true false 0 -0 -1 1 1.5 1e2 1E+400 -1e-400 1e999999999999 01 .5 1. 0x1 NaN Infinity 9007199254740993 18446744073709551616
	"" "x" "12" "\ud800" "\udc00\ud800" "\ud83c\udfc3" "\u0000" "\x" "\u12" {} [] [[]] {"":0} {"a":1,"a":1} [1,2 {"deep" } ] , : " \ "id" "c0" "c1" "head" "version" "deep"
	"2026-09-30" "2026-09-30T08:15:00Z" "0000-00-00" "2026-03-29T02:30:00" "::1" "192.0.2.1" "01234567-89ab-cdef-0123-456789abcdef" 99999999999999999999999999999999999999999`)

func init() {
	tokens = append(tokens, "\"\xff\"", "\xff", "\x00", "\"\xed\xa0\x80\"", " ", "\n", "\uFEFF", strings.Repeat("[", 200), strings.Repeat(`{"a":`, 200), strings.Repeat("9", 400), `"`+strings.Repeat("y", 300)+`"`)
}

// mutate spoils an event in one to three places.
func mutate(random *rand.Rand, event []byte) []byte {
	event = slices.Clone(event)
	for range 1 + random.IntN(3) {
		if len(event) == 0 {
			return event
		}
		i := random.IntN(len(event))
		j := min(len(event), i+1+random.IntN(12))
		switch random.IntN(9) {
		case 0:
			event[i] ^= 1 << random.IntN(8)
		case 1:
			event[i] = byte(random.Uint32())
		case 2:
			event = slices.Delete(event, i, j)
		case 3:
			event = event[:i]
		case 4:
			event = slices.Insert(event, i, event[i:j]...)
		case 5:
			event = slices.Insert(event, i, []byte(tokens[random.IntN(len(tokens))])...)
		case 6, 7: // a whole value becomes another
			colon := bytes.IndexByte(event[i:], ':')
			if colon < 0 {
				continue
			}
			start := i + colon + 1
			s := scanner{}
			s.begin(event)
			s.pos = start
			if !s.skip() {
				continue
			}
			event = slices.Replace(event, start, s.pos, []byte(tokens[random.IntN(len(tokens))])...)
		case 8: // a name becomes another
			event = bytes.Replace(event, []byte(fmt.Sprintf("c%d", random.IntN(4))), []byte(fmt.Sprintf("c%d", random.IntN(4))), 1)
		}
	}
	return event
}

func TestHostileInputs(t *testing.T) {
	plans, inputs := 400, 100_000
	if testing.Short() {
		inputs /= 20
	}
	random := rand.New(rand.NewPCG(1, 2))
	classes := map[Class]int{}
	rowCount := 0
	for range plans {
		plan, event := randomPlan(t, random)
		c := newChecker(plan)
		if err := c.append(t, []byte(event)); err != nil {
			t.Fatalf("%s: %v", event, err)
		}
		for range inputs / plans {
			switch err := c.append(t, mutate(random, []byte(event))).(type) {
			case nil:
				rowCount++
				if c.rows.Len() > 3 {
					c.reset()
				}
			case *Error:
				classes[err.Class]++
			}
		}
	}
	t.Logf("%d hostile inputs: %d became rows, refused: %v", inputs/plans*plans, rowCount, classes)
	for _, c := range Classes() {
		if classes[c] == 0 && c != ClassTombstone {
			t.Errorf("no input was refused as %s", c)
		}
	}
	if rowCount < inputs/50 {
		t.Errorf("only %d of %d inputs became rows", rowCount, inputs)
	}
}

func FuzzAppend(f *testing.F) {
	random := rand.New(rand.NewPCG(3, 4))
	for seed := range uint64(40) {
		_, event := randomPlan(f, rand.New(rand.NewPCG(seed, 0)))
		f.Add(seed, []byte(event))
		f.Add(seed, mutate(random, []byte(event)))
	}
	f.Fuzz(func(t *testing.T, seed uint64, value []byte) {
		plan, event := randomPlan(t, rand.New(rand.NewPCG(seed, 0)))
		c := newChecker(plan)
		if err := c.append(t, []byte(event)); err != nil {
			t.Fatalf("%s: %v", event, err)
		}
		if value != nil {
			_ = c.append(t, value)
		}
		if err := c.append(t, []byte(event)); err != nil {
			t.Fatalf("%s: after %q: %v", event, value, err)
		}
	})
}

// The scanner takes a text exactly if jsontext takes it, but for texts that
// are nested deeper than it allows.
func FuzzScan(f *testing.F) {
	for _, t := range tokens {
		f.Add([]byte(t))
		f.Add([]byte(`{"a":[` + t + `,"b"]}`))
	}
	f.Add([]byte(fitnessEvent))
	f.Add([]byte(` [ 1 , { "a" : "é\n" , "b" : [ ] } ] `))
	f.Add([]byte(`{"a":{"a":1},"b":{"a":1},"c":[{"a":1},{"a":1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var s scanner
		s.begin(text)
		got := s.skip() && s.end()
		if want := jsontext.Value(text).IsValid(); got != want && !strings.Contains(s.reason, "deeper") {
			t.Fatalf("%q: accepted %t (%s: %s), jsontext says %t", text, got, s.class, s.reason, want)
		}
		if got && s.depth != 0 {
			t.Fatalf("%q: depth %d at the end", text, s.depth)
		}
	})
}

// Strings come out as jsontext decodes them.
func FuzzString(f *testing.F) {
	for _, text := range []string{`""`, `"abc"`, `"12345678é\n\ud83c\udfc3\/\"\\"`, `"\ud800"`, "\"\xff\"", `"\u0000\u001f"`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) == 0 || text[0] != '"' {
			return
		}
		var s scanner
		s.begin(text)
		got, ok := s.str()
		if !ok || !s.end() {
			return // FuzzScan knows whether that is right
		}
		want, err := jsontext.AppendUnquote(nil, bytes.TrimRight(text, " \t\r\n"))
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%q: %q, want %q (%v)", text, got, want, err)
		}
	})
}
