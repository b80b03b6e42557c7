// Package prometheus_test holds the alerts and the dashboard against Prometheus' own promtool, the program's metrics and
// the runbook.
package prometheus_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/chprojector/projector/internal/testenv"
)

type rule struct {
	Record, Alert, Expr string
	Labels, Annotations map[string]string
}

func readRules(t *testing.T) (rules []rule) {
	t.Helper()
	text, err := os.ReadFile("projector.rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules
}

// promtool runs Prometheus' own tool.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := testenv.Promtool(t.Context())
	if err != nil {
		if testing.Short() {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// ruleTests are the files of promtool's tests.
func ruleTests(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.test.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests of rules: %v", err)
	}
	return files
}

func TestRules(t *testing.T) {
	promtool(t, "check", "rules", "projector.rules.yaml")
	promtool(t, slices.Concat([]string{"test", "rules"}, ruleTests(t))...)
}

// TestTwoAlertsPage: nobody is woken by a cause, or by a third symptom that somebody adds.
func TestTwoAlertsPage(t *testing.T) {
	got := map[string][]string{}
	for _, r := range readRules(t) {
		if r.Alert != "" && !slices.Contains(got[r.Labels["severity"]], r.Alert) {
			got[r.Labels["severity"]] = append(got[r.Labels["severity"]], r.Alert)
		}
	}
	if diff := cmp.Diff([]string{"ProjectorStale", "ProjectorBehind", "ProjectorSignalMissing"}, got["page"]); diff != "" {
		t.Errorf("what pages: -want +got:\n%s", diff)
	}
	if want := []string{"page", "ticket"}; !slices.Equal(slices.Sorted(maps.Keys(got)), want) {
		t.Errorf("severities %v, want %v", slices.Sorted(maps.Keys(got)), want)
	}
}

// Every alert is tested to fire, and not to fire.
func TestAlertsAreTested(t *testing.T) {
	type seen struct{ fires, rests bool }
	tested := map[string]seen{}
	for _, path := range ruleTests(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Tests []struct {
				AlertRuleTest []struct {
					Alertname string
					ExpAlerts []any `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			}
		}
		if err := yaml.Unmarshal(text, &file); err != nil {
			t.Fatal(err)
		}
		for _, test := range file.Tests {
			for _, a := range test.AlertRuleTest {
				s := tested[a.Alertname]
				tested[a.Alertname] = seen{s.fires || len(a.ExpAlerts) > 0, s.rests || len(a.ExpAlerts) == 0}
			}
		}
	}
	for _, r := range readRules(t) {
		if s := tested[r.Alert]; r.Alert != "" && (!s.fires || !s.rests) {
			t.Errorf("%s: tested to fire: %v, not to fire: %v", r.Alert, s.fires, s.rests)
		}
	}
}

// TestRunbooks: who is woken finds a section with commands of this program.
func TestRunbooks(t *testing.T) {
	const page = "https://github.com/chprojector/projector/blob/main/docs/operations.md"
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, section := range regexp.MustCompile(`(?m)^#+ `).Split(string(text), -1) {
		title, body, _ := strings.Cut(section, "\n")
		sections[strings.ToLower(strings.ReplaceAll(title, " ", "-"))] = body
	}
	for _, r := range readRules(t) {
		if r.Alert == "" {
			continue
		}
		link, anchor, _ := strings.Cut(r.Annotations["runbook_url"], "#")
		if body, ok := sections[anchor]; link != page || !ok || !regexp.MustCompile(`(?m)^ *\$ projector `).MatchString(body) {
			t.Errorf("%s: %s leads to no section with a command of this program", r.Alert, r.Annotations["runbook_url"])
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s does not say what is wrong", r.Alert)
		}
	}
}

// TestScraping: the scrape configuration that the manifests' README shows is one, and brings the labels that the rules,
// the dashboard and the scalers ask for.
func TestScraping(t *testing.T) {
	text, err := os.ReadFile("../kubernetes/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "```yaml\n")
	block, _, found := strings.Cut(block, "```")
	var config struct {
		ScrapeConfigs []struct {
			RelabelConfigs []struct {
				TargetLabel string `yaml:"target_label"`
			} `yaml:"relabel_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(block), &config); !found || err != nil || len(config.ScrapeConfigs) != 1 {
		t.Fatalf("no scrape configuration in the README: %v\n%s", err, block)
	}
	path := filepath.Join(t.TempDir(), "prometheus.yml")
	// Debian builds promtool without the discovery of Kubernetes.
	discovered := regexp.MustCompile(`(?m)^ *kubernetes_sd_configs: .*\n`).ReplaceAllString(block, "")
	if err := os.WriteFile(path, []byte(discovered), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "config", "--syntax-only", path)
	labels := map[string]bool{}
	for _, r := range config.ScrapeConfigs[0].RelabelConfigs {
		labels[r.TargetLabel] = true
	}
	if !labels["namespace"] || !labels["pod"] {
		t.Errorf("it does not set namespace and pod, which alerts are grouped by and the HPA's metric is found by:\n%s", block)
	}
}

// documented are the metrics of docs/commands.md, which a test of the program holds equal to what it exports.
func documented(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if cell, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | "); ok && strings.HasPrefix(line, "| `projector_") {
			for _, name := range regexp.MustCompile("`(projector_\\w+)`").FindAllStringSubmatch(cell, -1) {
				names[name[1]] = true
			}
		}
	}
	return names
}

var metricName = regexp.MustCompile(`\bprojector[_:][a-zA-Z0-9_:]+`)

// unknown returns the metrics of an expression that neither the program exports nor a rule records.
func unknown(t *testing.T, expr string) (names []string) {
	t.Helper()
	known := documented(t)
	for _, r := range readRules(t) {
		known[r.Record] = true
	}
	for _, name := range metricName.FindAllString(expr, -1) {
		base := name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} { // of a histogram
			if cut, ok := strings.CutSuffix(name, suffix); ok && known[cut] {
				base = cut
			}
		}
		if !known[base] {
			names = append(names, name)
		}
	}
	return names
}

func TestRulesNameMetricsThatExist(t *testing.T) {
	for _, r := range readRules(t) {
		for _, name := range unknown(t, r.Expr) {
			t.Errorf("%s%s asks for %s, which does not exist", r.Record, r.Alert, name)
		}
	}
}

type panel struct {
	Title, Description, Type string
	Panels                   []panel
	Targets                  []struct{ Expr string }
}

func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Title, UID string
		Panels     []panel
		Templating struct {
			List []struct{ Name, Query string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	type recorded struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var all []recorded
	take := func(where, expr string) {
		for _, name := range unknown(t, expr) {
			t.Errorf("%s asks for %s, which does not exist", where, name)
		}
		all = append(all, recorded{fmt.Sprintf("dashboard:expr%d", len(all)), expr})
	}
	var walk func([]panel)
	walk = func(panels []panel) {
		for _, p := range panels {
			if p.Type != "row" && (len(p.Targets) == 0 || p.Title == "" || p.Description == "") {
				t.Errorf("the panel %q shows nothing, or does not say what", p.Title)
			}
			for _, target := range p.Targets {
				take("the panel "+p.Title, target.Expr)
			}
			walk(p.Panels)
		}
	}
	walk(board.Panels)
	for _, v := range board.Templating.List {
		if metric, ok := strings.CutPrefix(v.Query, "label_values("); ok {
			metric, _, _ = strings.Cut(metric, ",")
			take("the variable "+v.Name, metric)
		}
	}
	if len(all) < 10 {
		t.Errorf("only %d expressions were found", len(all))
	}
	// Grafana's own variables are none of PromQL.
	for i := range all {
		all[i].Expr = strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h").Replace(all[i].Expr)
	}
	rules, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": all}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "dashboard.rules.yaml")
	if err := os.WriteFile(path, rules, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", path)
}
