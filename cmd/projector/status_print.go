package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chprojector/projector/internal/audit"
)

func (s *projectionStatus) print(w io.Writer) error {
	head := newTable(w)
	head.row("projection", s.Projection)
	head.row("table", s.Table)
	head.row("group", s.Group)
	head.row("lag", number(s.Lag, "unknown"))
	head.row("newest row", s.freshness())
	head.row("reconciled", s.reconciled())
	head.row("discrepancies", s.discrepancies())
	if text := s.repairs(); text != "" {
		head.row("repairs", text)
	}
	if err := head.flush(); err != nil {
		return err
	}
	if len(s.Partitions) > 0 {
		fmt.Fprintln(w)
		t := newTable(w, "TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "STORED")
		for _, p := range s.Partitions {
			lag := number(p.Lag, "unknown")
			if p.Expired > 0 {
				lag += fmt.Sprintf(" (%d expired unread)", p.Expired)
			}
			t.row(p.Topic, fmt.Sprint(p.Partition), number(p.Committed, s.missing(partOffsets, "none")), number(p.End, "unknown"), lag, number(p.Stored, s.missing(partStored, "-")))
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	for i, trouble := range s.Trouble {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, printable(trouble))
	}
	if len(s.Letters) > 0 {
		fmt.Fprintln(w)
		t := newTable(w, "DEAD LETTERS", "COUNT", "NEWEST", "CLASSES")
		for _, l := range s.Letters {
			newest := "-"
			if l.Newest != nil {
				newest = instant(*l.Newest)
			}
			t.row(l.Topic, strconv.FormatInt(l.Letters, 10), newest, l.classes())
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	for _, u := range s.Unknown {
		fmt.Fprintf(w, "unknown  %s\n", printable(u))
	}
	return nil
}

// missing is what an absent value means: nothing there, or nobody answered.
func (s *projectionStatus) missing(part, nothing string) string {
	if slices.ContainsFunc(s.Unknown, func(u string) bool { return strings.HasPrefix(u, part+": ") }) {
		return "unknown"
	}
	return nothing
}

func (s *projectionStatus) freshness() string {
	if s.Newest == nil {
		return s.missing(partStored, "none")
	}
	age := time.Duration(*s.Age * float64(time.Second)).Round(time.Second)
	return fmt.Sprintf("%s ago (%s)", age, instant(*s.Newest))
}

// reconciled is the newest comparison with each kind of source.
func (s *projectionStatus) reconciled() string {
	var list []string
	for _, r := range s.Reconciled {
		list = append(list, fmt.Sprintf("%s against %s: campaign %s %s", instant(r.At), r.Against, r.Campaign, r.Verdict))
	}
	if len(list) == 0 {
		return s.missing(partFound, "never")
	}
	return strings.Join(list, "; ")
}

// discrepancies lists what is unresolved, by kind.
func (s *projectionStatus) discrepancies() string {
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(s.Discrepancies)) {
		list = append(list, fmt.Sprintf("%s %d", kind, s.Discrepancies[kind]))
	}
	if len(list) == 0 {
		return s.missing(partFound, "none known")
	}
	return strings.Join(list, ", ")
}

// repairs lists those that are not at their end; "" is none.
func (s *projectionStatus) repairs() string {
	var list []string
	for _, state := range slices.Sorted(maps.Keys(s.Repairs)) {
		text := fmt.Sprintf("%d %s", s.Repairs[state], state)
		if state == audit.Applied {
			text += " and not verified"
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

// classes lists the classes, the most frequent first.
func (l *letterStatus) classes() string {
	if len(l.Classes) == 0 {
		return "-"
	}
	names := slices.SortedFunc(maps.Keys(l.Classes), func(a, b string) int {
		if d := l.Classes[b] - l.Classes[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for i, n := range names {
		label := n
		if n == "" {
			label = "(not the projector's)"
		}
		names[i] = fmt.Sprintf("%s %d", label, l.Classes[n])
	}
	text := strings.Join(names, ", ")
	if int64(l.Scanned) < l.Letters {
		text += fmt.Sprintf(" (of the newest %d)", l.Scanned)
	}
	return text
}

func number(n *int64, absent string) string {
	if n == nil {
		return absent
	}
	return strconv.FormatInt(*n, 10)
}
