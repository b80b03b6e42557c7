package mapping

import (
	"testing"

	"github.com/chprojector/projector/chschema"
)

func mustType(t testing.TB, text string) chschema.Type {
	t.Helper()
	typ, err := chschema.ParseType(text)
	if err != nil {
		t.Fatal(err)
	}
	return typ
}

// fitness is the projection of the sample configuration.
func fitness(t testing.TB) Spec {
	spec := Spec{
		Identity:      []string{"data_id"},
		Version:       "version",
		Deleted:       "is_deleted",
		SchemaVersion: SchemaVersion{From: "schemaVersion", Accept: []int64{1}},
		Generation:    1,
	}
	for _, c := range [][3]string{
		{"data_id", "dataId", "UInt64"},
		{"detect_id", "detectId", "UInt64"},
		{"user_id", "userId", "UInt64"},
		{"project_id", "projectId", "UInt32"},
		{"version", "version", "UInt64"},
		{"result", "result", "Decimal(18, 3)"},
		{"unit", "unit", "LowCardinality(String)"},
		{"is_deleted", "isDeleted", "Bool"},
		{"event_id", "eventId", "String"},
	} {
		spec.Columns = append(spec.Columns, Column{Name: c[0], From: c[1], Type: mustType(t, c[2])})
	}
	return spec
}

func mustCompile(t testing.TB, spec Spec) *Plan {
	t.Helper()
	plan, err := Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

const fitnessEvent = `{"schemaVersion":1,"dataId":9007199254740993,"detectId":418,"userId":120034,"projectId":12,"version":1759223412123,"result":2.31,"unit":"m","isDeleted":false,"eventId":"0198c1a2-7b0e"}`

func TestAppendFitness(t *testing.T) {
	plan := mustCompile(t, fitness(t))
	rows := plan.NewRows()
	at := Lineage{Topic: "fitness-results", Partition: 3, Offset: 17, Origin: "stream"}
	if err := plan.Append(rows, []byte(fitnessEvent), at); err != nil {
		t.Fatal(err)
	}
	if rows.Len() != 1 {
		t.Fatalf("%d rows", rows.Len())
	}
	for column, want := range map[string]string{
		"data_id": "9007199254740993", "detect_id": "418", "user_id": "120034", "project_id": "12", "version": "1759223412123",
		"result": "2.31", "unit": "m", "is_deleted": "false", "event_id": "0198c1a2-7b0e",
		"_topic": "fitness-results", "_partition": "3", "_offset": "17", "_origin": "stream", "_generation": "1",
	} {
		if got := rows.Format(0, column); got != want {
			t.Errorf("%s = %q, want %q", column, got, want)
		}
	}
	if got := rows.Lineage(0); got != at {
		t.Errorf("lineage %+v, want %+v", got, at)
	}
	if got := rows.Identity(0); got != "data_id=9007199254740993" {
		t.Errorf("identity %q", got)
	}
}
