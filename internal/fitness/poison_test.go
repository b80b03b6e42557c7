package fitness_test

import (
	"errors"
	"testing"

	"github.com/chprojector/projector/internal/config"
	"github.com/chprojector/projector/internal/fitness"
	"github.com/chprojector/projector/mapping"
)

// The sample configuration refuses every poison event for the reason given here, and takes the story's other messages.
func TestPoisonsUnderTheSampleConfiguration(t *testing.T) {
	cfg, err := config.Load(config.Input{Path: "../../config.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := cfg.Projections[0].Plan()
	if err != nil {
		t.Fatal(err)
	}
	rows := plan.NewRows()
	for _, p := range fitness.Poisons() {
		var letter *mapping.Error
		if err := plan.Append(rows, p.Value, mapping.Lineage{}); !errors.As(err, &letter) {
			t.Errorf("%s: %v, want a letter", p.Name, err)
		} else if string(letter.Class) != p.Class || letter.Column != p.Column {
			t.Errorf("%s: class %q, column %q; want %q, %q: %v", p.Name, letter.Class, letter.Column, p.Class, p.Column, err)
		}
	}
	if rows.Len() != 0 {
		t.Errorf("poison left %d rows", rows.Len())
	}
	good := 0
	for _, step := range fitness.Story() {
		err := plan.Append(rows, step.Value, mapping.Lineage{})
		if (err != nil) != step.Poison {
			t.Errorf("%s: %v", step.Note, err)
		}
		if !step.Poison {
			good++
		}
	}
	if rows.Len() != good {
		t.Errorf("%d rows of the story, want %d", rows.Len(), good)
	}
}
