package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/chprojector/projector/internal/offsets"
)

func (s *shownOffsets) print(w io.Writer) error {
	head := newTable(w)
	head.row("projection", s.Projection)
	head.row("group", s.Group)
	head.row("table", s.Table)
	if len(s.Members) > 0 {
		head.row("members", strings.Join(s.Members, ", "))
	}
	if s.Restored != "" {
		head.row("restored", s.Restored)
	}
	if err := head.flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	tab := newTable(w, "TOPIC", "PARTITION", "START", "END", "COMMITTED", "STORED", "STATE", "RESTORE", "BECAUSE")
	for _, p := range s.Partitions {
		tab.row(p.Topic, fmt.Sprint(p.Partition), fmt.Sprint(p.Start), fmt.Sprint(p.End), number(p.Committed, "none"), number(p.Stored, "-"),
			string(p.State), strconv.FormatInt(p.Restore, 10), p.Reason)
	}
	if err := tab.flush(); err != nil {
		return err
	}
	for _, p := range s.Partitions {
		if remedy := troubleOf(p.Topic, p.Partition, p.State, p.Start, p.Committed, p.Stored, s.Projection); remedy != "" {
			fmt.Fprintln(w, remedy)
		}
		if p.Lost > 0 {
			fmt.Fprintf(w, "%s/%d: %d offsets below %d are gone and may not be stored, %d of them surely: backfill\n", p.Topic, p.Partition, p.Lost, p.Start, p.Certain)
		}
	}
	return nil
}

// troubleOf is the sentence for a partition that is not as it should be: what
// happened, with the exact gap, and what to do.
func troubleOf(topic string, partition int32, state offsets.State, start int64, committed, stored *int64, projection string) string {
	at := fmt.Sprintf("%s/%d: ", topic, partition)
	switch state {
	case offsets.OK, offsets.Unread:
	case offsets.Expired:
		return at + fmt.Sprintf("retention removed offsets %d to %d before they were read: backfill them", *committed, start-1)
	case offsets.Forgotten:
		return at + fmt.Sprintf("the group has no commit, but offset %d is stored: run `projector offsets restore --projection %s`, or let the group read the topic again", *stored, projection)
	case offsets.Replaced:
		what := "offset " + number(stored, "-") + " is stored"
		if stored == nil || committed != nil && *committed > *stored {
			what = "offset " + number(committed, "-") + " is committed"
		}
		return at + what + ", but the log ends before it: the topic was created anew or its log was cut; the group reads it from its start"
	}
	return ""
}
