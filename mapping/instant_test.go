package mapping

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDates(t *testing.T) {
	both := values{
		`"2026-09-30"`: "2026-09-30", `"1970-01-01"`: "1970-01-01", `"2024-02-29"`: "2024-02-29", `"2000-02-29"`: "2000-02-29",
		`"2023-02-29"`: "!time", `"2100-02-29"`: "!time", `"2026-09-31"`: "!time", `"2026-13-01"`: "!time", `"2026-00-01"`: "!time", `"0000-00-00"`: "!time", `"2026-01-00"`: "!time",
		`"2026-9-30"`: "!format", `"20260930"`: "!format", `"2026/09/30"`: "!format", `""`: "!format", `"2026-09-30T00:00:00Z"`: "!format", `"2026-09-3a"`: "!format", `"+026-09-30"`: "!format",
		"20361": "!type", "null": "!null", `"9999-12-31"`: "!range", `"0001-01-01"`: "!range",
	}
	both.check(t, "Date", Column{})
	both.check(t, "Date32", Column{})
	values{`"2149-06-06"`: "2149-06-06", `"2149-06-07"`: "!range", `"1969-12-31"`: "!range"}.check(t, "Date", Column{})
	values{`"1900-01-01"`: "1900-01-01", `"1899-12-31"`: "!range", `"2299-12-31"`: "2299-12-31", `"2300-01-01"`: "!range"}.check(t, "Date32", Column{})
}

func TestTimestamps(t *testing.T) {
	values{
		`"2026-09-30T08:15:00Z"`: "2026-09-30 08:15:00.000", `"2026-09-30t08:15:00z"`: "2026-09-30 08:15:00.000", `"2026-09-30 08:15:00Z"`: "2026-09-30 08:15:00.000",
		`"2026-09-30T08:15Z"`: "2026-09-30 08:15:00.000", `"2026-09-30T10:15:00+02:00"`: "2026-09-30 08:15:00.000", `"2026-09-30T10:15:00.250+0200"`: "2026-09-30 08:15:00.250",
		`"2026-09-30T10:15:00+02"`: "2026-09-30 08:15:00.000", `"2026-09-29T22:15:00-10:00"`: "2026-09-30 08:15:00.000", `"2026-09-30T08:15:00-00:00"`: "2026-09-30 08:15:00.000",
		`"2026-09-30T13:45:00+05:30"`: "2026-09-30 08:15:00.000", `"2026-09-30T08:15:00.1Z"`: "2026-09-30 08:15:00.100", `"2026-09-30T08:15:00.1230000000000Z"`: "2026-09-30 08:15:00.123",
		`"1969-12-31T23:59:59.999Z"`: "1969-12-31 23:59:59.999", `"1900-01-01T00:00:00Z"`: "1900-01-01 00:00:00.000", `"2299-12-31T23:59:59.999Z"`: "2299-12-31 23:59:59.999",
		`"1899-12-31T23:59:59.999Z"`: "!range", `"2300-01-01T00:00:00Z"`: "!range", `"2299-12-31T23:59:59-00:30"`: "!range", `"0001-01-01T00:00:00Z"`: "!range", `"9999-12-31T23:59:59Z"`: "!range",
		`"2026-09-30T08:15:00.1234Z"`: "!precision", `"2026-09-30T08:15:00.0000000001Z"`: "!precision",
		`"2026-09-30T08:15:00"`: "!time", `"2026-09-30 08:15:00.5"`: "!time", `"2026-09-31T08:15:00Z"`: "!time", `"2026-09-30T24:00:00Z"`: "!time", `"2026-09-30T08:60:00Z"`: "!time",
		`"2026-06-30T23:59:60Z"`: "!time", `"0000-00-00 00:00:00"`: "!time", `"0000-00-00T00:00:00Z"`: "!time", `"2026-09-30T08:15:00+25:00"`: "!time", `"2026-09-30T08:15:00+02:60"`: "!time",
		`""`: "!format", `"2026-09-30"`: "!format", `"2026-09-30T08Z"`: "!format", `"2026-09-30T08:15:00.Z"`: "!format", `"2026-09-30T08:15:00,5Z"`: "!format", `"2026-09-30T08:15:00 Z"`: "!format",
		`"2026-09-30T08:15:00UTC"`: "!format", `"2026-09-30T08:15:00Zx"`: "!format", `"2026-09-30T8:15:00Z"`: "!format", `"2026-09-30T08:15:0Z"`: "!format", `"2026-09-30_08:15:00Z"`: "!format",
		`"2026-09-30T08:15:00+2"`: "!format", `"2026-09-30T08:15:00+02:0"`: "!format", `"2026-09-30T08:15:00+aa:00"`: "!format", `"now"`: "!format", `"2026-09-30T08:15:00+"`: "!format",
		`"20260930T081500Z"`: "!format", `"+2026-09-30T08:15:00Z"`: "!format", `" 2026-09-30T08:15:00Z"`: "!format", `"Wed, 30 Sep 2026 08:15:00 GMT"`: "!format",
		"1759220100000": "!type", `"1759220100000"`: "!type", "null": "!null", "true": "!type", "{}": "!type",
	}.check(t, "DateTime64(3)", Column{})
	values{
		`"1970-01-01T00:00:00Z"`: "1970-01-01 00:00:00", `"2106-02-07T06:28:15Z"`: "2106-02-07 06:28:15", `"2106-02-07T06:28:16Z"`: "!range", `"1969-12-31T23:59:59Z"`: "!range",
		`"2026-09-30T08:15:00.000Z"`: "2026-09-30 08:15:00", `"2026-09-30T08:15:00.001Z"`: "!precision",
	}.check(t, "DateTime", Column{})
	values{
		`"2262-04-11T23:47:16.854775807Z"`: "2262-04-11 23:47:16.854775807", `"2262-04-11T23:47:16.854775808Z"`: "!range", `"2262-04-11T23:47:17Z"`: "!range", `"2299-01-01T00:00:00Z"`: "!range",
		`"1900-01-01T00:00:00.000000000Z"`: "1900-01-01 00:00:00.000000000", `"1899-12-31T23:59:59.999999999Z"`: "!range", `"2026-09-30T08:15:00.1234567891Z"`: "!precision",
		`"1677-09-21T00:12:43Z"`: "!range", `"9999-12-31T23:59:59.999999999Z"`: "!range",
	}.check(t, "DateTime64(9)", Column{})
	values{`"2026-09-30T08:15:00Z"`: "2026-09-30 10:15:00.000000"}.check(t, "DateTime64(6, 'Europe/Zurich')", Column{})
	values{`"2026-09-30T08:15:00Z"`: "2026-09-30 17:15:00"}.check(t, "DateTime('Asia/Tokyo')", Column{})
}

func TestTimestampsRounded(t *testing.T) {
	half := Column{Round: "half_even"}
	values{
		`"2026-09-30T08:15:00.0005Z"`: "2026-09-30 08:15:00.000", `"2026-09-30T08:15:00.0015Z"`: "2026-09-30 08:15:00.002", `"2026-09-30T08:15:00.00050001Z"`: "2026-09-30 08:15:00.001",
		`"2026-12-31T23:59:59.9996Z"`: "2027-01-01 00:00:00.000", `"1969-12-31T23:59:59.9995Z"`: "1970-01-01 00:00:00.000", `"1969-12-31T23:59:59.9985Z"`: "1969-12-31 23:59:59.998",
		`"2299-12-31T23:59:59.9996Z"`: "!range", `"2299-12-31T23:59:59.9994Z"`: "2299-12-31 23:59:59.999",
	}.check(t, "DateTime64(3)", half)
	values{
		`"2026-09-30T08:15:00.5Z"`: "2026-09-30 08:15:00", `"2026-09-30T08:15:01.5Z"`: "2026-09-30 08:15:02", `"2106-02-07T06:28:15.5Z"`: "!range", `"1969-12-31T23:59:59.5Z"`: "1970-01-01 00:00:00",
	}.check(t, "DateTime", half)
	values{"1759220100500": "2025-09-30 08:15:00", "1759220101500": "2025-09-30 08:15:02", "1759220100501": "2025-09-30 08:15:01"}.check(t, "DateTime", Column{Round: "half_even", Unit: "ms"})
}

func TestLocalTimes(t *testing.T) {
	zurich := Column{Zone: "Europe/Zurich"}
	values{
		`"2026-09-30T10:15:00"`: "2026-09-30 08:15:00.000", `"2026-01-30 10:15:00.5"`: "2026-01-30 09:15:00.500", `"2026-09-30T10:15:00Z"`: "2026-09-30 10:15:00.000", `"2026-09-30T10:15:00+05:00"`: "2026-09-30 05:15:00.000",
		`"2026-03-29T01:59:59.999"`: "2026-03-29 00:59:59.999", `"2026-03-29T02:00:00"`: "!time", `"2026-03-29T02:30:00"`: "!time", `"2026-03-29T02:59:59.999"`: "!time", `"2026-03-29T03:00:00"`: "2026-03-29 01:00:00.000",
		`"2026-10-25T01:59:59.999"`: "2026-10-24 23:59:59.999", `"2026-10-25T02:00:00"`: "!time", `"2026-10-25T02:59:59.999"`: "!time", `"2026-10-25T03:00:00"`: "2026-10-25 02:00:00.000",
		`"2026-10-25T02:30:00+02:00"`: "2026-10-25 00:30:00.000", `"2026-10-25T02:30:00+01:00"`: "2026-10-25 01:30:00.000",
	}.check(t, "DateTime64(3)", zurich)
	// A zone of the type says how the server shows a time, not what a text means.
	values{`"2026-09-30T10:15:00"`: "!time"}.check(t, "DateTime64(3, 'Europe/Zurich')", Column{})
	values{`"2011-12-30T12:00:00"`: "!time", `"2011-12-31T00:00:00"`: "2011-12-30 10:00:00"}.check(t, "DateTime", Column{Zone: "Pacific/Apia"})                                          // a day that Samoa skipped
	values{`"2026-04-05T01:45:00"`: "!time", `"2026-04-05T01:29:59"`: "2026-04-04 14:29:59", `"2026-10-04T02:15:00"`: "!time"}.check(t, "DateTime", Column{Zone: "Australia/Lord_Howe"}) // half an hour
	values{`"2026-03-29T02:30:00"`: "2026-03-29 02:30:00"}.check(t, "DateTime", Column{Zone: "UTC"})
	values{`"1900-06-01T00:00:00"`: "1900-06-01 00:43:08.000"}.check(t, "DateTime64(3)", Column{Zone: "Africa/Monrovia"})
}

func TestEpochNumbers(t *testing.T) {
	values{
		"1759220100": "2025-09-30 08:15:00.000", `"1759220100"`: "2025-09-30 08:15:00.000", "1759220100.25": "2025-09-30 08:15:00.250", "1.7592201e9": "2025-09-30 08:15:00.000", "-1": "1969-12-31 23:59:59.000",
		"1759220100.0001": "!precision", "1e30": "!range", "99999999999": "!range", "-99999999999": "!range", `"2026-09-30T08:15:00Z"`: "2026-09-30 08:15:00.000", "null": "!null", `""`: "!format", "true": "!type",
	}.check(t, "DateTime64(3)", Column{Unit: "s"})
	values{"1759220100123": "2025-09-30 08:15:00.123", "1759220100123.4": "!precision", "-1": "1969-12-31 23:59:59.999"}.check(t, "DateTime64(3)", Column{Unit: "ms"})
	values{"1759220100123": "2025-09-30 08:15:00.123000", "1759220100123.456": "2025-09-30 08:15:00.123456"}.check(t, "DateTime64(6)", Column{Unit: "ms"})
	values{"1759220100123456": "!precision", "1759220100123000": "2025-09-30 08:15:00.123"}.check(t, "DateTime64(3)", Column{Unit: "us"})
	values{"1759220100123456789": "2025-09-30 08:15:00.123456789", "9223372036854775807": "2262-04-11 23:47:16.854775807", "9223372036854775808": "!range"}.check(t, "DateTime64(9)", Column{Unit: "ns"})
	values{"1759220100000": "2025-09-30 08:15:00", "1759220100001": "!precision", "0": "1970-01-01 00:00:00", "-1000": "!range", "4294967295000": "2106-02-07 06:28:15", "4294967296000": "!range"}.check(t, "DateTime", Column{Unit: "ms"})
	values{"[1759220100,null]": "['2025-09-30 08:15:00',NULL]"}.check(t, "Array(Nullable(DateTime))", Column{Unit: "s"})
}

// Every local time of a zone is judged as the zone's rules, read the other way
// round, say: an instant shows the local time, or none does, or two do.
func TestLocalTimesAgainstTheZoneReadBackwards(t *testing.T) {
	var zones []*time.Location
	for _, name := range []string{"Europe/Zurich", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu", "Africa/Casablanca", "America/St_Johns", "Asia/Manila", "Antarctica/Troll", "UTC"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		zones = append(zones, zone)
	}
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom(zones).Draw(t, "zone")
		reader := &zoneReader{location: zone}
		base := rapid.Int64Range(-2208988800, 7258118400).Draw(t, "base")
		for range 8 { // of one period, so that what is remembered is used
			local := base + rapid.Int64Range(-40*86400, 40*86400).Draw(t, "local")
			offsets := map[int]bool{}
			for at := local - 16*3600; at <= local+16*3600; at += 900 {
				_, offset := time.Unix(at, 0).In(zone).Zone()
				offsets[offset] = true
			}
			var found []int64
			for offset := range offsets {
				at := local - int64(offset)
				if _, o := time.Unix(at, 0).In(zone).Zone(); o == offset {
					found = append(found, at)
				}
			}
			got, matches := reader.instant(local)
			if matches != len(found) {
				t.Fatalf("%s: %d has %d instants, want %v", zone, local, matches, found)
			}
			if matches == 1 && got != found[0] {
				t.Fatalf("%s: %d is %d, want %d", zone, local, got, found[0])
			}
		}
	})
}

func TestCivilDaysAgainstTime(t *testing.T) {
	for days := int64(-200_000); days < 200_000; days++ {
		want := time.Unix(days*86400, 0).UTC()
		year, month, day := civilFromDays(days)
		if year != want.Year() || month != int(want.Month()) || day != want.Day() {
			t.Fatalf("day %d is %d-%d-%d, want %s", days, year, month, day, want)
		}
		if got := daysFromCivil(year, month, day); got != days {
			t.Fatalf("%d-%d-%d is day %d, want %d", year, month, day, got, days)
		}
	}
}

// An instant written in any offset and any number of decimals that the column
// keeps comes back as the same instant.
func TestInstantsAreExact(t *testing.T) {
	plans := map[int]*Plan{}
	for p := range 10 {
		plans[p] = mustCompile(t, single(t, fmt.Sprintf("DateTime64(%d)", p), Column{}))
	}
	rapid.Check(t, func(t *rapid.T) {
		precision := rapid.IntRange(0, 9).Draw(t, "precision")
		seconds := rapid.Int64Range(-2208988800, 9223372035).Draw(t, "seconds")
		ticks := rapid.Int64Range(0, int64(pow10s[precision])-1).Draw(t, "ticks")
		offset := rapid.IntRange(-14*60, 14*60).Draw(t, "offset")
		at := time.Unix(seconds, ticks*int64(pow10s[9-precision])).In(time.FixedZone("", offset*60))
		text := at.Format(time.RFC3339Nano)
		rows := plans[precision].NewRows()
		if err := plans[precision].Append(rows, fmt.Appendf(nil, `{"id":1,"version":1,"v":%q}`, text), Lineage{}); err != nil {
			t.Fatal(err)
		}
		format := time.DateTime
		if precision > 0 {
			format += "." + "000000000"[:precision]
		}
		if got, want := rows.Format(0, "v"), at.UTC().Format(format); got != want {
			t.Fatalf("%s became %s, want %s", text, got, want)
		}
	})
}
