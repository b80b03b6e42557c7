package projector

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

func TestDefaultConfigIsSound(t *testing.T) {
	cfg := DefaultConfig()
	if err := cfg.check(); err != nil {
		t.Error(err)
	}
}

func TestConfigRefusesContradictions(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no rows":          {func(c *Config) { c.Batch.Rows = 0 }, "batch.rows is 0: a cut needs at least one row"},
		"no bytes":         {func(c *Config) { c.Batch.Bytes = -1 }, "batch.bytes is -1: a cut needs at least one byte"},
		"no delay":         {func(c *Config) { c.Batch.Delay = 0 }, "batch.delay is 0s: it must be positive"},
		"no insert time":   {func(c *Config) { c.InsertTimeout = 0 }, "insert timeout is 0s: it must be positive"},
		"long insert":      {func(c *Config) { c.InsertTimeout = time.Minute }, "insert timeout 1m0s is not below the rebalance timeout 1m0s: an insert could outlive its partitions"},
		"long revoke":      {func(c *Config) { c.RevokeBudget = 55 * time.Second }, "revoke budget 55s and commit timeout 5s together are not below the rebalance timeout 1m0s: a slow insert would expel the lane"},
		"rare heartbeats":  {func(c *Config) { c.HeartbeatInterval = 16 * time.Second }, "heartbeat interval 16s is more than a third of the session timeout 45s: one late heartbeat would expel the lane"},
		"retries backward": {func(c *Config) { c.RetryMax = time.Millisecond }, "retry maximum 1ms is below the retry minimum 100ms"},
		"ratio of 2":       {func(c *Config) { c.StopRatio = 2 }, "stop_ratio is 2: it is a share between 0 and 1, 0 switches it off"},
		"ratio of NaN":     {func(c *Config) { c.StopRatio = math.NaN() }, "stop_ratio is NaN: it is a share between 0 and 1, 0 switches it off"},
		"negative run":     {func(c *Config) { c.StopRun = -1 }, "stop_run is -1: it counts records, 0 switches it off"},
		"impatient":        {func(c *Config) { c.StuckAfter = 30 * time.Second }, "stuck-after 30s is not above the longest healthy wait"},
		"tiny fetches":     {func(c *Config) { c.FetchBytes = 1 }, "fetch bytes are 1: at least 64 KiB are needed"},
		"huge fetches":     {func(c *Config) { c.FetchBytes = 3 << 30 }, "fetch bytes are 3221225472: at most 1 GiB"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			c.change(&cfg)
			if err := cfg.check(); err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestNewReportsEverythingAtOnce(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Batch.Rows = 0
	_, err := New(cfg, []Projection{{}, {Name: "a", Topics: []string{"a"}, Group: "g", Plan: testPlan(t), Lanes: 1}, {Name: "a", Plan: testPlan(t), Lanes: -1}}, Deps{})
	for _, want := range []string{
		"batch.rows is 0", `projection "": a name is needed`, `projection "": a plan is needed`, `projection "a" is named twice`,
		`projection "a": at least one topic is needed`, `projection "a": a consumer group is needed`, `projection "a": at least one lane is needed`,
		"an inserter, dead letters, records and a registerer are needed",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
	if _, err := New(DefaultConfig(), nil, Deps{}); err == nil || !strings.Contains(err.Error(), "no projection to run") {
		t.Errorf("an engine without projections: %v", err)
	}
}

// TestProjectionRefusesContradictions: a bounded projection has one beginning, one end and one lane.
func TestProjectionRefusesContradictions(t *testing.T) {
	at := map[string]map[int32]int64{"a": {0: 1}}
	for name, c := range map[string]struct {
		change func(*Projection)
		want   string
	}{
		"from without until": {func(p *Projection) { p.From = at }, "a projection that begins at given offsets is bounded"},
		"two lanes":          {func(p *Projection) { p.Until, p.Lanes = at, 2 }, "a bounded projection has one lane"},
		"two beginnings": {
			func(p *Projection) { p.Until, p.From, p.Start = at, at, StartLatest },
			"it begins at given offsets or at the end of its topics, not both: leave out From or StartLatest",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := Projection{Name: "a", Topics: []string{"a"}, Group: "g", Plan: testPlan(t), Lanes: 1}
			if err := p.check(); err != nil {
				t.Fatal(err)
			}
			c.change(&p)
			if err := p.check(); err == nil || err.Error() != `projection "a": `+c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestMetricsFollowTheRules(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m, err := newMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	l := m.lane(&Projection{Name: "results", Topics: []string{"t"}}, 0)
	l.recordsOf("results").Inc()
	l.committed("accepted", 1)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	there := map[string]bool{}
	for _, f := range families {
		there[f.GetName()] = true
	}
	for _, name := range []string{"projector_expired_records_total", "projector_offset_resets_total"} {
		if !there[name] {
			t.Errorf("%s is not there before the first loss: a rate would miss it", name)
		}
	}
}
