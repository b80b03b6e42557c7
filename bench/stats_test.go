package main

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		name string
		in   sample
		want float64
	}{
		{"nothing", nil, 0},
		{"one", sample{3}, 3},
		{"odd", sample{9, 1, 5}, 5},
		{"even", sample{9, 1, 5, 6}, 5.5},
	} {
		if got := test.in.median(); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestQuantile(t *testing.T) {
	var s sample
	for i := range 1000 {
		s = append(s, float64(i+1))
	}
	rand.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
	for q, want := range map[float64]float64{0: 1, 0.5: 500, 0.99: 990, 0.999: 999, 1: 1000} {
		if got := s.quantile(q); got != want {
			t.Errorf("quantile %v: %v, want %v", q, got, want)
		}
	}
	if got := (sample{}).quantile(0.5); got != 0 {
		t.Errorf("quantile of nothing: %v", got)
	}
}

func TestSampleText(t *testing.T) {
	for _, test := range []struct {
		in   sample
		want string
	}{
		{nil, none},
		{sample{1.234}, "1.23"},
		{sample{3, 1, 2}, "2.00 (1.00 … 3.00)"},
	} {
		if got := test.in.text("%.2f", 1); got != test.want {
			t.Errorf("%v: %q, want %q", test.in, got, test.want)
		}
	}
}

func TestSteadyLeavesOutStartAndTail(t *testing.T) {
	c := curve{{500 * time.Millisecond, 0}, {time.Second, 100}}
	for i := 2; i <= 9; i++ {
		c = append(c, point{time.Second + time.Duration(i-1)*100*time.Millisecond, 100 * i})
	}
	c = append(c, point{5 * time.Second, 1000}) // the last tenth waited
	if got := c.steady(); got < 999 || got > 1001 {
		t.Errorf("steady %v rows/s, want 1000", got)
	}
	if got := c.total(); got != 5*time.Second {
		t.Errorf("total %v, want 5s", got)
	}
	if got := (curve{{0, 0}, {time.Second, 1000}}).steady(); got != 0 {
		t.Errorf("steady of a single step: %v, want 0 for unknown", got)
	}
}

func TestProbesAreTimedOnce(t *testing.T) {
	var p probes
	start := time.Now()
	for i := range 4 {
		if e := p.add(start.Add(time.Duration(i) * time.Second)); e.DataID != uint64(i+1) {
			t.Fatalf("probe %d has the id %d", i, e.DataID)
		}
	}
	if p.see([]uint64{1, 3}, start.Add(5*time.Second)) {
		t.Error("all seen after two of four")
	}
	if p.floor() != 1 {
		t.Errorf("floor %d, want 1: probe 2 was not seen", p.floor())
	}
	if !p.see([]uint64{2, 3, 4}, start.Add(9*time.Second)) {
		t.Error("not all seen after four of four")
	}
	got := p.delays(start.Add(time.Second))
	want := sample{8000, 3000, 6000}
	if len(got) != len(want) {
		t.Fatalf("delays %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("delays %v, want %v", got, want)
		}
	}
}
