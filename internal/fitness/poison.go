package fitness

import (
	"fmt"
	"strings"
)

// Poison is an event that must become a dead letter under the sample configuration (config.yaml at the top of the
// repository), and the reason that the letter has to give.
type Poison struct {
	Name   string // what is wrong, in words
	Value  []byte // the Kafka value; nil is a tombstone
	Class  string // the class of reason that the letter gives
	Column string // the column the letter names; empty where the event as a whole is at fault
}

// FirstPoisonID is the data id of the first poison event; every one has an id of its own, so that a poison event that
// slips through is seen in the view as a record nobody else wrote.
const FirstPoisonID = 666_000_001

// Poisons returns the poison events, one for each way in which an event can be wrong.
func Poisons() []Poison {
	replace := func(name, class, column string, oldNew ...string) Poison {
		return Poison{Name: name, Class: class, Column: column, Value: []byte(strings.NewReplacer(oldNew...).Replace(sound))}
	}
	poisons := []Poison{
		replace("version above UInt64", "range", "version", `"version":2`, `"version":18446744073709551616`),
		replace("negative id for an unsigned column", "range", "user_id", `"userId":4`, `"userId":-4`),
		replace("project above UInt32", "range", "project_id", `"projectId":3`, `"projectId":4294967296`),
		replace("result above Decimal(18, 3)", "range", "result", `2.31`, `1000000000000000.000`),
		replace("more decimals than the column keeps", "precision", "result", `2.31`, `2.3105`),
		replace("fraction for an integer", "precision", "user_id", `"userId":4`, `"userId":12.5`),
		replace("NaN, which JSON does not know", "malformed", "", `2.31`, `NaN`),
		replace("null in a plain column", "null", "result", `2.31`, `null`),
		replace("missing field", "missing", "unit", `"unit":"m",`, ``),
		replace("field written twice", "duplicate", "unit", `"unit":"m",`, `"unit":"m","unit":"cm",`),
		replace("lone surrogate", "encoding", "unit", `"unit":"m"`, `"unit":"\ud83d"`),
		replace("invalid UTF-8", "encoding", "unit", `"unit":"m"`, "\"unit\":\"\xff\""),
		replace("text for a number", "format", "result", `2.31`, `"far"`),
		replace("empty text for a number", "format", "result", `2.31`, `""`),
		replace("number for a text", "type", "unit", `"unit":"m"`, `"unit":1`),
		replace("number for a boolean", "range", "is_deleted", `"isDeleted":false`, `"isDeleted":2`),
		replace("object for a number", "type", "result", `2.31`, `{"value":2.31}`),
		replace("unknown schema version", "schema_version", "", `"schemaVersion":1`, `"schemaVersion":99`),
		replace("missing schema version", "schema_version", "", `,"schemaVersion":1`, ``),
		replace("truncated JSON", "malformed", "", `,"schemaVersion":1}`, ``),
		replace("garbage after the object", "malformed", "", `"schemaVersion":1}`, `"schemaVersion":1} {}`),
		{Name: "array instead of an object", Class: "type", Value: []byte(`[1,2,3]`)},
		{Name: "text that is no JSON", Class: "malformed", Value: []byte("2.31 m, well done")},
		{Name: "empty value", Class: "empty", Value: []byte{}},
		{Name: "Kafka tombstone", Class: "tombstone", Value: nil},
	}
	for i := range poisons {
		p := &poisons[i]
		id := fmt.Sprint(FirstPoisonID + i)
		if p.Value != nil {
			p.Value = append([]byte{}, strings.ReplaceAll(string(p.Value), "900001", id)...)
		}
	}
	return poisons
}

// sound is the published example's event, which each poison event spoils in one place.
const sound = `{"eventId":"fitness-result-900001-v2","dataId":900001,"detectId":10001,"userId":4,"projectId":3,` +
	`"version":2,"result":2.31,"unit":"m","isDeleted":false,"schemaVersion":1}`
