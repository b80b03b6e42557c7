package mapping

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/chprojector/projector/internal/testenv"
)

// appendBlock appends rows [from,to) as a block of ClickHouse's format Native.
func appendBlock(dst []byte, rows *Rows, from, to int) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(rows.Columns())))
	dst = binary.AppendUvarint(dst, uint64(to-from))
	for _, c := range rows.Columns() {
		for _, text := range []string{c.Name(), c.Type().String()} {
			dst = append(binary.AppendUvarint(dst, uint64(len(text))), text...)
		}
		dst = c.AppendState(dst)
		dst = c.AppendNative(dst, from, to)
	}
	return dst
}

// What a server makes of the native bytes, and how it prints it, is what
// Format says: for every type, for all rows and for parts of them.
func TestServerReadsTheSameValues(t *testing.T) {
	db := testenv.SharedClickHouse(t)
	for i, s := range samples() {
		rows := s.rowsOf(t)
		table := fmt.Sprintf("sample_%d", i)
		var columns []string
		for _, c := range rows.Columns() {
			columns = append(columns, c.Name()+" "+c.Type().String())
		}
		db.Exec(t, "CREATE TABLE "+table+" ("+strings.Join(columns, ", ")+") ENGINE = Memory SETTINGS allow_suspicious_low_cardinality_types = 1")

		n := rows.Len()
		cuts := [][2]int{{0, n}, {1, n}, {n / 2, n/2 + 1}}
		var want []string
		for _, cut := range cuts {
			for row := cut[0]; row < cut[1]; row++ {
				want = append(want, rows.Format(row, "v")+"\t"+rows.Format(row, "_topic")+"\t"+rows.Format(row, "_offset"))
			}
			block := appendBlock(nil, rows, cut[0], cut[1])
			query := url.Values{"database": {db.Name}, "query": {"INSERT INTO " + table + " FORMAT Native"}}
			response, err := http.Post("http://"+db.HTTPAddr()+"/?"+query.Encode(), "", bytes.NewReader(block))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err != nil || response.StatusCode != http.StatusOK {
				t.Fatalf("%s: rows [%d,%d): %s %v", s.typ, cut[0], cut[1], answer, err)
			}
		}
		got, err := db.Query(t.Context(), "SELECT v, _topic, _offset FROM "+table+
			" FORMAT TSVRaw SETTINGS format_tsv_null_representation = 'NULL', session_timezone = 'UTC', max_threads = 1")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSuffix(got, "\n"); got != strings.Join(want, "\n") {
			t.Errorf("%s: the server has\n%s\nwant\n%s", s.typ, got, strings.Join(want, "\n"))
		}
	}
}
