package fitness

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// Columns returns the columns that [Model.Compare] reads, in its order. They are all business columns of the sample
// projection but is_deleted, which is false in every row of the current view.
func Columns() []string { return slices.Clone(columns[:]) }

var columns = [...]string{"data_id", "detect_id", "user_id", "project_id", "version", "result", "unit", "event_id"}

// Report is the outcome of a comparison.
type Report struct {
	Rows       int // rows of the view
	Equal      int // rows that are right in every field
	Different  int // rows with at least one wrong field
	Missing    int // records that should be visible and are not
	Unexpected int // rows of records that are deleted or unknown, or cannot be read
	Repeated   int // rows of a record that was seen before
	First      []string
}

// Err returns nil when the view is right, else the counts and the first differences in words.
func (r Report) Err() error {
	if r.Different+r.Missing+r.Unexpected+r.Repeated == 0 {
		return nil
	}
	return errors.New(r.String() + "\n  " + strings.Join(r.First, "\n  "))
}

// String returns the counts in one line.
func (r Report) String() string {
	return fmt.Sprintf("%d rows: %d equal, %d different, %d missing, %d unexpected, %d repeated",
		r.Rows, r.Equal, r.Different, r.Missing, r.Unexpected, r.Repeated)
}

// Compare reads all rows of the current view, [Columns] in order and rows in any order, and compares them field by
// field with the model. A value may be text, an integer, or anything that prints as its text (a driver's decimal).
// The report keeps up to 20 differences. Compare returns an error only if rows yields one or a row has another width.
func (m *Model) Compare(rows iter.Seq2[[]any, error]) (Report, error) {
	var r Report
	seen := make([]bool, len(m.states))
	for row, err := range rows {
		if err != nil {
			return r, fmt.Errorf("compare the current view: row %d: %w", r.Rows+1, err)
		}
		if len(row) != len(columns) {
			return r, fmt.Errorf("compare the current view: row %d has %d values, want %v", r.Rows+1, len(row), columns)
		}
		r.Rows++
		m.compareRow(&r, seen, row)
	}
	for i := range m.states {
		if s := &m.states[i]; !s.deleted && !seen[i] {
			r.Missing++
			r.say("data_id %d is missing, the events say version %d with result %s", s.dataID, s.version,
				formatThousandths(s.result))
		}
	}
	return r, nil
}

func (m *Model) compareRow(r *Report, seen []bool, row []any) {
	id, err := strconv.ParseUint(text(row[0]), 10, 64)
	if err != nil {
		r.Unexpected++
		r.say("a row has the data_id %q, which is no UInt64", text(row[0]))
		return
	}
	i, known := m.index[id]
	if !known {
		r.Unexpected++
		r.say("data_id %d is shown, no event speaks of it", id)
		return
	}
	s := &m.states[i]
	if s.deleted {
		r.Unexpected++
		r.say("data_id %d is shown with version %s, the events say deleted by version %d", id, text(row[4]), s.version)
		return
	}
	if seen[i] {
		r.Repeated++
		r.say("data_id %d is shown more than once, this time with version %s", id, text(row[4]))
		return
	}
	seen[i] = true
	wrong := false
	for c, want := range s.fields() {
		if got := text(row[c]); !want.equal(got) {
			wrong = true
			r.say("data_id %d: %s is %s, the events say %s (version %d)", id, want.name, strconv.Quote(got),
				strconv.Quote(want.text()), s.version)
		}
	}
	if wrong {
		r.Different++
	} else {
		r.Equal++
	}
}

// say keeps the first 20 differences.
func (r *Report) say(format string, args ...any) {
	const most = 20
	if len(r.First) < most {
		r.First = append(r.First, fmt.Sprintf(format, args...))
	}
}

// field is what one column of a row must hold, in one of three forms.
type field struct {
	name   string
	class  byte // 'u' unsigned, 'd' decimal in thousandths, 's' string
	number uint64
	string string
}

func (s *state) fields() [len(columns)]field {
	return [...]field{
		{columns[0], 'u', s.dataID, ""},
		{columns[1], 'u', s.detectID, ""},
		{columns[2], 'u', s.userID, ""},
		{columns[3], 'u', uint64(s.projectID), ""},
		{columns[4], 'u', s.version, ""},
		{columns[5], 'd', uint64(s.result), ""},
		{columns[6], 's', 0, s.unit},
		{columns[7], 's', 0, s.eventID},
	}
}

// equal compares by value: 2.31 and 2.310 are one decimal, while strings are compared byte by byte.
func (f field) equal(got string) bool {
	switch f.class {
	case 'u':
		n, err := strconv.ParseUint(got, 10, 64)
		return err == nil && n == f.number
	case 'd':
		n, err := thousandths(got)
		return err == nil && n == int64(f.number)
	}
	return got == f.string
}

func (f field) text() string {
	switch f.class {
	case 'u':
		return strconv.FormatUint(f.number, 10)
	case 'd':
		return formatThousandths(int64(f.number))
	}
	return f.string
}

func text(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case uint64:
		return strconv.FormatUint(v, 10)
	case uint32:
		return strconv.FormatUint(uint64(v), 10)
	}
	return fmt.Sprint(value)
}

func formatThousandths(n int64) string {
	sign, magnitude := "", uint64(n)
	if n < 0 {
		sign, magnitude = "-", -magnitude
	}
	return fmt.Sprintf("%s%d.%03d", sign, magnitude/1000, magnitude%1000)
}
