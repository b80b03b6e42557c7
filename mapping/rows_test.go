package mapping

import (
	"fmt"
	"testing"
)

func TestReset(t *testing.T) {
	for _, s := range samples() {
		rows := s.rowsOf(t)
		first := encode(rows)
		size := rows.Size()
		if size <= 0 {
			t.Errorf("%s: size %d", s.typ, size)
		}
		for range 2 {
			rows.Reset()
			if rows.Len() != 0 || rows.UnknownFields() != 0 {
				t.Fatalf("%s: %d rows after Reset", s.typ, rows.Len())
			}
			if rows.Size() > 40 { // what stands for NULL may stay
				t.Errorf("%s: %d bytes after Reset", s.typ, rows.Size())
			}
			for i, value := range s.values {
				if err := rows.plan.Append(rows, fmt.Appendf(nil, `{"id":%d,"version":1,"v":%s}`, i, value), Lineage{Topic: "t", Offset: int64(i)}); err != nil {
					t.Fatal(err)
				}
			}
			if encode(rows) != first || rows.Size() != size {
				t.Errorf("%s: other bytes after Reset", s.typ)
			}
		}
	}
}
