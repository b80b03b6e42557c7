package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const folder = "../kubernetes"

// rendered is every folder that is applied, as YAML.
func rendered(t *testing.T) map[string][][]byte {
	t.Helper()
	all := map[string][][]byte{}
	entries, err := os.ReadDir(filepath.Join(folder, "overlays"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{"base": "base"}
	for _, e := range entries {
		names[e.Name()] = filepath.Join("overlays", e.Name())
	}
	for name, path := range names {
		if all[name], err = Render(filepath.Join(folder, path)); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func overlays(t *testing.T) map[string]*Manifests {
	t.Helper()
	all := map[string]*Manifests{}
	for name, objects := range rendered(t) {
		m, err := Decode(objects)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[name] = m
	}
	return all
}

func TestOverlays(t *testing.T) {
	image := dockerImage(t)
	config := ""
	for name, m := range overlays(t) {
		for _, problem := range Check(m, effective(t, m), image) {
			t.Errorf("%s: %s", name, problem)
		}
		for _, c := range m.ConfigMaps {
			if config != "" && config != c.Name {
				t.Errorf("%s has the configuration %s, another folder %s", name, c.Name, config)
			}
			config = c.Name
		}
	}
}

// A scaler that asks for a metric which nobody exports leaves the number of pods as it is, and says so nowhere that is
// looked at.
func TestScaledMetricsExist(t *testing.T) {
	documented, err := os.ReadFile("../../docs/commands.md") // which a test holds equal to what is exported
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for name, m := range overlays(t) {
		for _, h := range m.Autoscalers {
			for _, metric := range h.Spec.Metrics {
				n++
				if metric.Pods == nil || !strings.Contains(string(documented), "| `"+metric.Pods.Metric.Name+"` ") {
					t.Errorf("%s: %s scales on %+v, which the program does not export", name, h.Name, metric)
				}
			}
		}
	}
	if n == 0 {
		t.Error("no metric is scaled on")
	}
}

// The second trigger is a comment for those who have Prometheus; without the # it must be as good as the rest.
func TestTriggerInComment(t *testing.T) {
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(copied, "overlays/keda/scaledobject.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, trigger, found := strings.Cut(string(text), "    # - type: prometheus\n")
	if !found {
		t.Fatal("there is no such comment")
	}
	trigger = "    - type: prometheus\n" + strings.ReplaceAll(trigger, "    #   ", "      ")
	check := func(trigger string) string {
		if err := os.WriteFile(path, []byte(before+trigger), 0o600); err != nil {
			t.Fatal(err)
		}
		objects, err := Render(filepath.Join(copied, "overlays/keda"))
		if err != nil {
			t.Fatal(err)
		}
		m, err := Decode(objects)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(m.ScaledObjects[0].Spec.Triggers); n != 2 {
			t.Fatalf("%d triggers, want 2", n)
		}
		return strings.Join(Check(m, effective(t, m), dockerImage(t)), "\n")
	}
	if problems := check(trigger); problems != "" {
		t.Error(problems)
	}
	for _, c := range []struct{ old, new, want string }{
		{"projector_records_total", "projector_lag_records", "is not the rate of events"},
		{"prometheus", "cron", "the type cron is none that a rule knows"},
	} {
		if problems := check(strings.Replace(trigger, c.old, c.new, 1)); !strings.Contains(problems, c.want) {
			t.Errorf("%s: got %q, want %q", c.new, problems, c.want)
		}
	}
}

// TestRulesRefuse breaks a folder in one place and expects the one rule to say so.
func TestRulesRefuse(t *testing.T) {
	image := dockerImage(t)
	all := rendered(t)
	whole := overlays(t)
	for name, c := range map[string]struct {
		overlay, old, new string
		want              string
	}{
		"unknown field":             {"base", "minReadySeconds:", "minReadySecond:", `unknown field "spec.minReadySecond"`},
		"unknown field of KEDA":     {"keda", "maxReplicaCount:", "maxReplicas:", `unknown field "spec.maxReplicas"`},
		"unknown kind":              {"base", "kind: PodDisruptionBudget", "kind: PodBudget", `no kind "PodBudget"`},
		"more pods than partitions": {"keda", "maxReplicaCount: 6", "maxReplicaCount: 7", "7 pods of 2 lanes are more than 12 partitions"},
		"the same by HPA":           {"hpa", "maxReplicas: 6", "maxReplicas: 7", "7 pods of 2 lanes are more than 12 partitions"},
		"one pod":                   {"keda", "minReplicaCount: 2", "minReplicaCount: 1", "minimum: is below 2"},
		"a scaled number":           {"keda", "minReadySeconds: 10", "replicas: 2\n  minReadySeconds: 10", "replicas: is set although a scaler owns the number"},
		"nothing to scale":          {"keda", "scaleTargetRef:\n    name: projector", "scaleTargetRef:\n    name: consumer", `there is no Deployment "consumer"`},
		"another start":             {"keda", "offsetResetPolicy: earliest", "offsetResetPolicy: latest", `"latest" is not kafka.start (earliest)`},
		"another group":             {"keda", "results.g1", "results.g2", "nobody counts the lag of projector.fitness_results.g1"},
		"another topic":             {"keda", "topic: fitness-results", "topic: results", `does not read "results"`},
		"a batch is a backlog":      {"keda", `"200000"`, `"1000"`, "is below lanes × batch.rows (200000)"},
		"fast scale-down":           {"keda", "stabilizationWindowSeconds: 1800", "stabilizationWindowSeconds: 60", "scaleDown: looks back less than 600 s"},
		"no fallback":               {"keda", "behavior: currentReplicasIfHigher", "behavior: static", "may take pods away"},
		"short grace":               {"base", "terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: 45", "45s is not longer than drain_timeout (25s) and insert_timeout (20s) together"},
		"a secret in the ConfigMap": {"base", "password_file: /run/secrets/projector/clickhouse-password", "password: hunter2", "clickhouse.password holds a secret"},
		"a secret in a variable":    {"base", "name: PROJECTOR_CONFIG", "name: PROJECTOR_CLICKHOUSE__PASSWORD", "env PROJECTOR_CLICKHOUSE__PASSWORD: holds a secret"},
		"a secret that is applied":  {"base", "kind: ServiceAccount", "kind: Secret", "decode"},
		"root":                      {"base", "runAsNonRoot: true", "runAsNonRoot: false", "the restricted profile refuses it: runAsNonRoot != true"},
		"a capability":              {"base", "- ALL", "- NET_RAW", "the restricted profile refuses it: unrestricted capabilities"},
		"no seccomp":                {"base", "type: RuntimeDefault", "type: Unconfined", "the restricted profile refuses it: seccompProfile"},
		"another user":              {"base", "runAsUser: 65532", "runAsUser: 1000", "is not 65532, the image's own"},
		"a writable root":           {"base", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "readOnlyRootFilesystem: is not set"},
		"a lax namespace":           {"base", "enforce: restricted", "enforce: baseline", "does not enforce the restricted profile"},
		"a token":                   {"base", "automountServiceAccountToken: false\n      containers", "automountServiceAccountToken: true\n      containers", "is not false"},
		"no release":                {"base", "projector:0.1.0", "projector:latest", "names no release"},
		"no memory limit":           {"base", "limits:\n            memory: 640Mi", "limits: {}", "memory is not guaranteed"},
		"another GOMEMLIMIT":        {"base", "resource: limits.memory", "resource: requests.memory", "does not come from this container's limits.memory"},
		"a CPU limit":               {"base", "limits:\n", "limits:\n            cpu: \"1\"\n", "throttles heartbeats"},
		"static membership":         {"base", "name: GOMAXPROCS", "name: PROJECTOR_KAFKA__INSTANCE_ID", "static membership"},
		"another liveness path":     {"base", "path: /livez", "path: /readyz", "livenessProbe: does not ask /livez"},
		"another port":              {"base", "containerPort: 8080", "containerPort: 9090", "does not name http.address (:8080) http"},
		"another scrape port":       {"base", `prometheus.io/port: "8080"`, `prometheus.io/port: "9090"`, "do not have Prometheus scrape"},
		"a port for everybody":      {"base", ", token_file: /run/secrets/projector/http-token}", "}", "http.token_file: is missing"},
		"a port for nobody":         {"base", `address: ":8080"`, `address: "127.0.0.1:8080"`, "is out of the kubelet's reach"},
		"a probe without TLS":       {"base", "http-token}", "http-token, tls: {enabled: true, cert_file: /c, key_file: /k}}", "does not speak HTTPS"},
		"TLS of the probe alone":    {"base", "path: /livez", "scheme: HTTPS\n            path: /livez", "does not speak HTTP, as"},
		"a nervous probe":           {"base", "failureThreshold: 6", "failureThreshold: 1", "kills after 10s"},
		"a service of nothing":      {"base", "selector:\n    app.kubernetes.io/component: consumer", "selector:\n    app.kubernetes.io/component: reader", "selects no pod"},
		"Kafka is shut off":         {"base", "port: 9092", "port: 9094", "does not let it through to kafka-bootstrap.kafka:9092"},
		"MySQL is open":             {"base", "port: 9092", "port: 3306", "MySQL is open: true"},
		"no such volume":            {"base", "name: secrets\n        secret", "name: keys\n        secret", "volumes keys: is not mounted"},
		"another file":              {"base", "value: /etc/projector/config.yaml", "value: /config.yaml", "env PROJECTOR_CONFIG: is not"},
		"a Job that may hang":       {"backfill", "activeDeadlineSeconds:", "backoffLimitPerIndex:", "activeDeadlineSeconds: is missing"},
		"two at a time":             {"reconcile", "concurrencyPolicy: Forbid", "concurrencyPolicy: Allow", "would load the source twice"},
		"a start that is lost":      {"reconcile", "  startingDeadlineSeconds: 14400\n", "", "startingDeadlineSeconds: is missing"},
		"a run into the next":       {"reconcile", "activeDeadlineSeconds: 21600", "activeDeadlineSeconds: 86400", "would still go on when the next one is due"},
		"a weekly run":              {"reconcile", "17 1 * * *", "17 1 * * 0", "does not run every day"},
		"no such schedule":          {"reconcile", "17 1 * * *", "daily", "does not run every day"},
		"a zone of the controller":  {"reconcile", "  timeZone: Etc/UTC\n", "", "timeZone: is missing"},
		"no history":                {"reconcile", "failedJobsHistoryLimit: 7", "failedJobsHistoryLimit: 0", "how many answers are kept, or none are"},
		"one attempt":               {"reconcile", "backoffLimit: 2", "backoffLimit: 0", "would cost the whole night"},
		"attempts by default":       {"reconcile", "      backoffLimit: 2\n", "", "backoffLimit: is missing"},
		"a difference is repeated":  {"reconcile", "- 3\n", "- 5\n", "repeats a run whose answer is final"},
		"a moving source is final":  {"reconcile", "- 3\n", "- 3\n            - 4\n", "gives up although the answer may come: exit code 4"},
		"a reader shut off":         {"reconcile", `            projector/source: "true"`, `            projector/source: "false"`, "MySQL is open: false; the pod has its secret: true"},
		"root at night":             {"reconcile", "runAsNonRoot: true", "runAsNonRoot: false", "the restricted profile refuses it: runAsNonRoot != true"},
		"finished pods":             {"backfill", "  ttlSecondsAfterFinished: 604800\n", "", "ttlSecondsAfterFinished: is missing"},
		"a source shut off":         {"backfill", `        projector/source: "true"`, `        projector/source: "false"`, "MySQL is open: false; the pod has its secret: true"},
		"retries of an answer":      {"schema", "- 3\n", "- 4\n", "repeats a run whose answer is final"},
	} {
		t.Run(name, func(t *testing.T) {
			var broken [][]byte
			changed := false
			for _, text := range all[c.overlay] {
				now := strings.ReplaceAll(string(text), c.old, c.new)
				changed = changed || now != string(text)
				broken = append(broken, []byte(now))
			}
			if !changed {
				t.Fatalf("%q is not in %s: nothing is broken", c.old, c.overlay)
			}
			m, err := Decode(broken)
			if err != nil {
				if !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %q", err, c.want)
				}
				return
			}
			configured := whole[c.overlay]
			if strings.Contains(c.old, "http-token}") || strings.HasPrefix(c.old, "address:") { // what is broken is the configuration
				configured = m
			}
			problems := Check(m, effective(t, configured), image)
			if !strings.Contains(strings.Join(problems, "\n"), c.want) {
				t.Errorf("got %q, want %q", problems, c.want)
			}
		})
	}
}
