package mapping

import (
	"strings"

	"github.com/chprojector/projector/chschema"
)

// Zero returns the JSON text of the value that ClickHouse itself gives a column
// which an insert leaves out: 0, "", the first day or the epoch, NULL, the lowest name of an Enum.
func Zero(t chschema.Type) []byte { return appendZeroJSON(nil, t) }

func appendZeroJSON(dst []byte, t chschema.Type) []byte {
	switch t.Kind {
	case chschema.KindNullable:
		return append(dst, "null"...)
	case chschema.KindLowCardinality:
		return appendZeroJSON(dst, t.Elem[0])
	case chschema.KindBool:
		return append(dst, "false"...)
	case chschema.KindString:
		return append(dst, `""`...)
	case chschema.KindFixedString:
		return append(dst, `"`+strings.Repeat(`\u0000`, t.Length)+`"`...)
	case chschema.KindUUID:
		return append(dst, `"00000000-0000-0000-0000-000000000000"`...)
	case chschema.KindIPv4:
		return append(dst, `"0.0.0.0"`...)
	case chschema.KindIPv6:
		return append(dst, `"::"`...)
	case chschema.KindDate:
		return append(dst, `"1970-01-01"`...)
	case chschema.KindDate32:
		return append(dst, `"1900-01-01"`...)
	case chschema.KindDateTime, chschema.KindDateTime64:
		return append(dst, `"1970-01-01T00:00:00Z"`...)
	case chschema.KindEnum8, chschema.KindEnum16:
		return AppendText(dst, []byte(t.Enum[0].Name))
	case chschema.KindArray:
		return append(dst, "[]"...)
	case chschema.KindMap:
		return append(dst, "{}"...)
	case chschema.KindTuple:
		dst = append(dst, '[')
		for i, e := range t.Elem {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendZeroJSON(dst, e)
		}
		return append(dst, ']')
	}
	return append(dst, '0')
}
