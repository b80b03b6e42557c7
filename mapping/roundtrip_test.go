package mapping

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/chprojector/projector/internal/testenv"
)

// A sent is a JSON value and a judge of what the server prints for it. The judges use nothing of this package: they
// read the JSON text and the server's text with the standard library and ask whether both mean the same.
type sent struct {
	json  string
	equal func(got string) bool
}

// trips are the supported types, each with a source of values. Many values do not fit their type; those must be
// refused, and whatever is not refused must come back as it was.
var trips = []struct {
	typ     string
	options Column
	read    string // how the server is asked; v if empty
	value   func(r *rand.Rand) sent
}{
	{typ: "Int8", value: number},
	{typ: "Int16", value: number},
	{typ: "Int32", value: number},
	{typ: "Int64", value: number},
	{typ: "Int128", value: number},
	{typ: "Int256", value: number},
	{typ: "UInt8", value: number},
	{typ: "UInt16", value: number},
	{typ: "UInt32", value: number},
	{typ: "UInt64", value: number},
	{typ: "UInt128", value: number},
	{typ: "UInt256", value: number},
	{typ: "Decimal(9, 2)", value: number},
	{typ: "Decimal(9, 9)", value: number},
	{typ: "Decimal(18, 3)", value: number},
	{typ: "Decimal(38, 10)", value: number},
	{typ: "Decimal(76, 20)", value: number},
	{typ: "Float32", value: float(32)},
	{typ: "Float64", value: float(64)},
	{typ: "Bool", value: truth},
	{typ: "String", read: "hex(v)", value: text},
	{typ: "LowCardinality(String)", read: "hex(v)", value: text},
	{typ: "FixedString(3)", read: "hex(v)", value: text},
	{typ: "Nullable(String)", read: "ifNull(hex(v), 'NULL')", value: orNull(text)},
	{typ: "LowCardinality(Nullable(String))", read: "ifNull(hex(v), 'NULL')", value: orNull(text)},
	{typ: "Nullable(Decimal(18, 3))", value: orNull(number)},
	{typ: "Nullable(Int64)", value: orNull(number)},
	{typ: "DateTime('UTC')", value: instant},
	{typ: "DateTime64(0, 'UTC')", value: instant},
	{typ: "DateTime64(3, 'UTC')", value: instant},
	{typ: "DateTime64(6, 'Asia/Shanghai')", read: "toTimeZone(v, 'UTC')", value: instant},
	{typ: "DateTime64(9, 'UTC')", value: instant},
	{typ: "DateTime64(3, 'UTC')", options: Column{Unit: "ms"}, value: sinceEpoch(3)},
	{typ: "DateTime64(9, 'UTC')", options: Column{Unit: "ns"}, value: sinceEpoch(9)},
	{typ: "DateTime64(6, 'UTC')", options: Column{Unit: "s"}, value: sinceEpoch(0)},
	{typ: "DateTime64(6, 'UTC')", options: Column{Unit: "us"}, value: sinceEpoch(6)},
	{typ: "Date", value: day},
	{typ: "Date32", value: day},
	{typ: "UUID", value: uuid},
	{typ: "IPv4", value: address},
	{typ: "IPv6", value: address},
	{typ: "Enum8('a' = -1, 'b' = 7)", value: word(`"a"`, `"b"`, `"c"`, `""`, "1")},
	{typ: "Enum16('a' = -1000, 'b' = 7)", value: word(`"a"`, `"b"`, `"B"`)},
	{typ: "Array(Int64)", value: list("[", "]", ",")},
	{typ: "Tuple(Int64, Int64)", value: list("(", ")", ",")},
	{typ: "Map(String, Int64)", value: object},
}

func TestEveryTypeComesBackExactly(t *testing.T) {
	each := 300
	if testing.Short() {
		each = 50
	}
	db := testenv.SharedClickHouse(t)
	stored, refused := 0, 0
	for i, trip := range trips {
		random := rand.New(rand.NewPCG(uint64(i), 11))
		plan := mustCompile(t, single(t, trip.typ, trip.options))
		rows := plan.NewRows()
		var kept []sent
		for range each {
			s := trip.value(random)
			err := plan.Append(rows, []byte(`{"id":1,"version":2,"v":`+s.json+`,"after":"it, for short cuts that need room"}`), Lineage{Topic: "t"})
			if _, ok := errors.AsType[*Error](err); ok {
				refused++
				continue
			} else if err != nil {
				t.Fatalf("%s: %s: %v", trip.typ, s.json, err)
			}
			kept = append(kept, s)
		}
		if len(kept) == 0 {
			t.Errorf("%s: nothing was stored", trip.typ)
			continue
		}
		stored += len(kept)
		for j, got := range comeBack(t, db, fmt.Sprintf("trip_%d", i), trip.read, rows) {
			if !kept[j].equal(got) {
				t.Errorf("%s: %s came back as %q", trip.typ, kept[j].json, got)
			}
		}
	}
	t.Logf("%d values of %d types came back as they were, %d were refused", stored, len(trips), refused)
}

// comeBack inserts the rows and returns what the server prints for the column v of each.
func comeBack(t *testing.T, db *testenv.ClickHouseDatabase, table, read string, rows *Rows) []string {
	t.Helper()
	var columns []string
	for _, c := range rows.Columns() {
		columns = append(columns, c.Name()+" "+c.Type().String())
	}
	db.Exec(t, "CREATE TABLE "+table+" ("+strings.Join(columns, ", ")+") ENGINE = Memory SETTINGS allow_suspicious_low_cardinality_types = 1")
	query := url.Values{"database": {db.Name}, "query": {"INSERT INTO " + table + " FORMAT Native"}}
	response, err := http.Post("http://"+db.HTTPAddr()+"/?"+query.Encode(), "", bytes.NewReader(appendBlock(nil, rows, 0, rows.Len())))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v", table, answer, err)
	}
	if read == "" {
		read = "v"
	}
	out, err := db.Query(t.Context(), "SELECT "+read+" FROM "+table+" FORMAT TSVRaw SETTINGS format_tsv_null_representation = 'NULL', session_timezone = 'UTC', max_threads = 1")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if len(lines) != rows.Len() {
		t.Fatalf("%s: %d rows came back of %d", table, len(lines), rows.Len())
	}
	return lines
}

// number is any JSON number, from small to far too large, now and then in a text.
func number(r *rand.Rand) sent {
	digits := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteByte(byte('0' + r.IntN(10)))
		}
		return b.String()
	}
	b := strings.TrimLeft(digits(r.IntN([]int{4, 11, 21, 80}[r.IntN(4)])), "0")
	if b == "" {
		b = "0"
	}
	if r.IntN(3) == 0 { // where a type ends
		edge := new(big.Int).Lsh(big.NewInt(1), []uint{7, 8, 15, 16, 31, 32, 53, 63, 64, 127, 128, 255, 256}[r.IntN(13)])
		b = edge.Add(edge, big.NewInt(r.Int64N(5)-2)).String()
	}
	if r.IntN(3) == 0 {
		b = "-" + b
	}
	if r.IntN(2) == 0 {
		b += "." + digits(1+r.IntN(4)) + strings.Repeat("0", r.IntN(3))
	}
	if r.IntN(4) == 0 {
		b += []string{"e", "E", "e+", "E-"}[r.IntN(4)] + strconv.Itoa(r.IntN(20))
	}
	want, ok := new(big.Rat).SetString(b)
	return sent{quotedSometimes(r, b), func(got string) bool {
		have, read := new(big.Rat).SetString(got)
		return ok && read && want.Cmp(have) == 0
	}}
}

func quotedSometimes(r *rand.Rand, b string) string {
	if r.IntN(5) == 0 {
		return `"` + b + `"`
	}
	return b
}

// float is a number that stands for the float nearest to it, in any notation.
func float(bits int) func(r *rand.Rand) sent {
	return func(r *rand.Rand) sent {
		b := strconv.FormatFloat((r.Float64()-0.5)*[]float64{1, 1e3, 1e30, 1e-30, 1e300}[r.IntN(5)], "efg"[r.IntN(3)], -1, 64)
		want, err := strconv.ParseFloat(b, bits)
		return sent{b, func(got string) bool {
			have, read := strconv.ParseFloat(got, bits)
			return err == nil && read == nil && want == have
		}}
	}
}

// word is one of several values that are printed as they are, without quotes.
func word(words ...string) func(r *rand.Rand) sent {
	return func(r *rand.Rand) sent {
		w := words[r.IntN(len(words))]
		return sent{w, func(got string) bool { return got == strings.Trim(w, `"`) }}
	}
}

// truth is a Bool, for which 1 and 0 may stand.
func truth(r *rand.Rand) sent {
	written := []string{"true", "false", "1", "0", `"true"`, "2", "1.0"}[r.IntN(7)]
	means := map[string]string{"true": "true", "1": "true", "1.0": "true", "false": "false", "0": "false"}
	return sent{written, func(got string) bool { return got == means[written] }}
}

var special = []rune("\"\\/'äß€🏃🏽\u200d♀\u2028")

// text is a string of any characters, in any of JSON's notations.
func text(r *rand.Rand) sent {
	var s strings.Builder
	for range r.IntN([]int{4, 4, 40, 400}[r.IntN(4)]) {
		switch r.IntN(6) {
		case 0:
			s.WriteByte(byte(r.IntN(0x20)))
		case 1:
			s.WriteRune(special[r.IntN(len(special))])
		case 2:
			for {
				if c := rune(r.IntN(0x110000)); c < 0xD800 || c > 0xDFFF {
					s.WriteRune(c)
					break
				}
			}
		default:
			s.WriteByte(byte('a' + r.IntN(26)))
		}
	}
	var b []byte
	for _, c := range s.String() {
		switch {
		case r.IntN(4) == 0 && c < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, c)
		case r.IntN(4) == 0:
			c -= 0x10000
			b = fmt.Appendf(b, `\u%04X\u%04x`, 0xD800+c>>10, 0xDC00+c&0x3FF)
		default:
			q, _ := jsontext.AppendQuote(nil, string(c))
			b = append(b, q[1:len(q)-1]...)
		}
	}
	want := strings.ToUpper(hex.EncodeToString([]byte(s.String())))
	return sent{`"` + string(b) + `"`, func(got string) bool { return got == want }}
}

func orNull(value func(r *rand.Rand) sent) func(r *rand.Rand) sent {
	return func(r *rand.Rand) sent {
		if r.IntN(4) == 0 {
			return sent{"null", func(got string) bool { return got == "NULL" }}
		}
		return value(r)
	}
}

// moment is a time between the years 1 and 9999, most of them in reach of the types.
func moment(r *rand.Rand) time.Time {
	low, high := time.Date(1890, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(2310, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	if r.IntN(20) == 0 {
		low, high = time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC).Unix(), time.Date(9999, 12, 30, 0, 0, 0, 0, time.UTC).Unix()
	}
	nanos := r.Int64N(1e9)
	for range r.IntN(10) { // often few digits
		nanos -= nanos % []int64{1, 10, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9}[r.IntN(10)]
	}
	return time.Unix(low+r.Int64N(high-low), nanos).UTC()
}

// sameInstant judges what the server prints in UTC.
func sameInstant(at time.Time) func(string) bool {
	return func(got string) bool {
		have, err := time.Parse("2006-01-02 15:04:05.999999999", got)
		return err == nil && have.Equal(at)
	}
}

func instant(r *rand.Rand) sent {
	at := moment(r)
	zone := time.FixedZone("", 60*(r.IntN(24*60)-12*60))
	if r.IntN(2) == 0 {
		zone = time.UTC
	}
	return sent{`"` + at.In(zone).Format(time.RFC3339Nano) + `"`, sameInstant(at)}
}

// sinceEpoch is a number that counts from 1970 with the given decimal digits of a second.
func sinceEpoch(digits int) func(r *rand.Rand) sent {
	return func(r *rand.Rand) sent {
		unit := time.Second
		for range digits {
			unit /= 10
		}
		at := moment(r).Truncate(unit)
		count := new(big.Int).Mul(big.NewInt(at.Unix()), big.NewInt(int64(time.Second/unit)))
		count.Add(count, big.NewInt(int64(at.Nanosecond())/int64(unit)))
		return sent{quotedSometimes(r, count.String()), sameInstant(at)}
	}
}

func day(r *rand.Rand) sent {
	want := moment(r).Format(time.DateOnly)
	return sent{`"` + want + `"`, func(got string) bool { return got == want }}
}

func uuid(r *rand.Rand) sent {
	h := fmt.Sprintf("%016x%016x", r.Uint64(), r.Uint64())
	want := h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
	written := want
	if r.IntN(2) == 0 {
		written = strings.ToUpper(want)
	}
	return sent{`"` + written + `"`, func(got string) bool { return got == want }}
}

func address(r *rand.Rand) sent {
	var b [16]byte
	for i := range b {
		b[i] = byte(r.Uint32()) * byte(r.IntN(2))
	}
	at := netip.AddrFrom16(b)
	if r.IntN(2) == 0 {
		at = netip.AddrFrom4([4]byte(b[:4]))
	}
	written := at.String()
	if r.IntN(3) == 0 {
		written = strings.ToUpper(at.StringExpanded())
	}
	return sent{`"` + written + `"`, func(got string) bool {
		have, err := netip.ParseAddr(got)
		return err == nil && have.Unmap() == at.Unmap()
	}}
}

// list is an array of numbers, which the server prints between the given marks.
func list(open, end, between string) func(r *rand.Rand) sent {
	return func(r *rand.Rand) sent {
		numbers := make([]string, r.IntN(5))
		for i := range numbers {
			numbers[i] = strconv.FormatInt(int64(r.Uint64()), 10)
		}
		want := open + strings.Join(numbers, between) + end
		return sent{"[" + strings.Join(numbers, ", ") + "]", func(got string) bool { return got == want }}
	}
}

func object(r *rand.Rand) sent {
	var members, want []string
	for i := range r.IntN(5) {
		n := int64(r.Uint64())
		members = append(members, fmt.Sprintf(`"k%d":%d`, i, n))
		want = append(want, fmt.Sprintf("'k%d':%d", i, n))
	}
	return sent{"{" + strings.Join(members, ",") + "}", func(got string) bool { return got == "{"+strings.Join(want, ",")+"}" }}
}
