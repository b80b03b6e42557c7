package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/chprojector/projector/internal/testenv"
)

// TestDemo runs the whole demo with fewer events: what it shows is what the README promises.
func TestDemo(t *testing.T) {
	binary, err := testenv.Build(t.Context(), "projector")
	if err != nil {
		t.Fatal(err)
	}
	var out, log bytes.Buffer
	cmd := demoCmd{Events: 2000, Config: "../../config.yaml", Binary: binary}
	if err := cmd.Run(t.Context(), streams{out: &out, err: &log}); err != nil {
		t.Fatalf("%v\n%s%s", err, &out, &log)
	}
	for _, want := range []string{
		"data_id 1: 2.21 m (version 1)",
		"fitness-result-1-v2  sent",
		"data_id 1: 2.31 m (version 2)",
		"0 different, 0 missing, 0 unexpected, 0 repeated",
		`"2,41": this text is not a decimal number`,
		"drained, committed and left the group, exit 0",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the demo does not show %q:\n%s", want, &out)
		}
	}
}

// TestDemoNeedsTheProjector shows what a reader sees who has not built it.
func TestDemoNeedsTheProjector(t *testing.T) {
	var out, log bytes.Buffer
	cmd := demoCmd{Events: 1, Config: "../../config.yaml", Binary: t.TempDir() + "/projector"}
	err := cmd.Run(t.Context(), streams{out: &out, err: &log})
	if err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("error %v, want one that names `make build`", err)
	}
}
