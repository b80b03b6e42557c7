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
	Column string // the column the letter names; empty where the event as a whole is at fault
}

// FirstPoisonID is the data id of the first poison event; every one has an id of its own, so that a poison event that
// slips through is seen in the view as a record nobody else wrote.
const FirstPoisonID = 666_000_001

// Poisons returns the poison events, one for each way in which an event can be wrong.
func Poisons() []Poison {
	replace := func(name, column string, oldNew ...string) Poison {
		return Poison{Name: name, Column: column, Value: []byte(strings.NewReplacer(oldNew...).Replace(sound))}
	}
	poisons := []Poison{
		replace("version above UInt64", "version", `"version":2`, `"version":18446744073709551616`),
		replace("negative id for an unsigned column", "user_id", `"userId":4`, `"userId":-4`),
		replace("project above UInt32", "project_id", `"projectId":3`, `"projectId":4294967296`),
		replace("result above Decimal(18, 3)", "result", `2.31`, `1000000000000000.000`),
		replace("more decimals than the column keeps", "result", `2.31`, `2.3105`),
		replace("fraction for an integer", "user_id", `"userId":4`, `"userId":12.5`),
		replace("NaN, which JSON does not know", "", `2.31`, `NaN`),
		replace("null in a plain column", "result", `2.31`, `null`),
		replace("missing field", "unit", `"unit":"m",`, ``),
		replace("field written twice", "", `"unit":"m",`, `"unit":"m","unit":"cm",`),
		replace("lone surrogate", "", `"unit":"m"`, `"unit":"\ud83d"`),
		replace("invalid UTF-8", "", `"unit":"m"`, "\"unit\":\"\xff\""),
		replace("text for a number", "result", `2.31`, `"far"`),
		replace("empty text for a number", "result", `2.31`, `""`),
		replace("number for a text", "unit", `"unit":"m"`, `"unit":1`),
		replace("number for a boolean", "is_deleted", `"isDeleted":false`, `"isDeleted":2`),
		replace("object for a number", "result", `2.31`, `{"value":2.31}`),
		replace("unknown schema version", "", `"schemaVersion":1`, `"schemaVersion":99`),
		replace("missing schema version", "", `,"schemaVersion":1`, ``),
		replace("truncated JSON", "", `,"schemaVersion":1}`, ``),
		replace("garbage after the object", "", `"schemaVersion":1}`, `"schemaVersion":1} {}`),
		{Name: "array instead of an object", Value: []byte(`[1,2,3]`)},
		{Name: "text that is no JSON", Value: []byte("2.31 m, well done")},
		{Name: "empty value", Value: []byte{}},
		{Name: "Kafka tombstone", Value: nil},
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
