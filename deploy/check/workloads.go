package check

import (
	"cmp"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// checkDeployment: a process that runs until it is told to stop.
func checkDeployment(r *report, d *appsv1.Deployment, cfg *Config) {
	pod := &d.Spec.Template.Spec
	r.must(selector(d.Spec.Selector).Matches(labels.Set(d.Spec.Template.Labels)), "selector", "does not select its own pods")
	grace := time.Duration(0)
	if pod.TerminationGracePeriodSeconds != nil {
		grace = time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
	}
	drain, insert := time.Duration(cfg.DrainTimeout), time.Duration(cfg.ClickHouse.InsertTimeout)
	r.must(grace > drain+insert, "terminationGracePeriodSeconds", "%v is not longer than drain_timeout (%v) and insert_timeout (%v) together", grace, drain, insert)
	r.must(len(pod.TopologySpreadConstraints) > 0, "topologySpreadConstraints", "all pods may land on one node")
	for _, c := range pod.TopologySpreadConstraints {
		r.must(selector(c.LabelSelector).Matches(labels.Set(d.Spec.Template.Labels)), "topologySpreadConstraints", "%s does not count its own pods", c.TopologyKey)
	}

	if len(pod.Containers) != 1 {
		return
	}
	c := &pod.Containers[0]
	// A static member that is gone keeps its partitions until its session times out, and a Deployment's pods have no
	// stable name to come back under.
	for _, e := range c.Env {
		r.must(!strings.Contains(strings.ToLower(e.Name), "instance"), "env "+e.Name, "looks like static membership")
	}
	port := portOf(cfg.HTTP.Address)
	r.must(len(c.Ports) == 1 && c.Ports[0].Name == "http" && c.Ports[0].ContainerPort == port, "ports", "does not name http.address (%s) http", cfg.HTTP.Address)
	scheme := corev1.URISchemeHTTP
	if cfg.HTTP.TLS.Enabled {
		scheme = corev1.URISchemeHTTPS
	}
	checkProbe(r, "livenessProbe", c.LivenessProbe, "/livez", scheme)
	checkProbe(r, "readinessProbe", c.ReadinessProbe, "/readyz", scheme)
	host, _, _ := net.SplitHostPort(cfg.HTTP.Address)
	r.must(host != "localhost" && !net.ParseIP(host).IsLoopback(), "http.address", "%s is out of the kubelet's reach", cfg.HTTP.Address)
	r.must(cfg.HTTP.TokenFile != "", "http.token_file", "is missing: every pod that reaches %s reads metrics, dead letters and the configuration", cfg.HTTP.Address)
	if p := c.LivenessProbe; p != nil {
		patience := time.Duration(p.PeriodSeconds*p.FailureThreshold) * time.Second
		r.must(patience >= 30*time.Second, "livenessProbe", "kills after %v; a busy node is no reason to restart", patience)
	}
	annotations := d.Spec.Template.Annotations
	r.must(annotations["prometheus.io/scrape"] == "true" && annotations["prometheus.io/port"] == cfg.HTTP.Address[strings.LastIndexByte(cfg.HTTP.Address, ':')+1:],
		"annotations", "do not have Prometheus scrape http.address")
}

func checkProbe(r *report, name string, p *corev1.Probe, path string, scheme corev1.URIScheme) {
	if p != nil && p.HTTPGet != nil {
		r.must(cmp.Or(p.HTTPGet.Scheme, corev1.URISchemeHTTP) == scheme, name, "does not speak %s, as http.tls has it", scheme)
	}
	r.must(p != nil && p.HTTPGet != nil && p.HTTPGet.Path == path && p.HTTPGet.Port.StrVal == "http", name, "does not ask %s at the port http", path)
}

// checkJobs: a command that ends, and whose answer is not repeated until it changes.
func checkJobs(r *report, m *Manifests) {
	for _, j := range m.Jobs {
		checkJob(r.at("Job "+j.Name), &j.Spec)
		r.must(j.Spec.TTLSecondsAfterFinished != nil, "ttlSecondsAfterFinished", "is missing: finished pods would pile up")
	}
	for _, c := range m.CronJobs {
		checkCronJob(r.at("CronJob "+c.Name), &c.Spec)
	}
}

// daily is a schedule of at least one run a day. The alert on runs that are missing counts in days.
var daily = regexp.MustCompile(`^[0-5]?\d (\*|\*/\d+|\d+(,\d+)*) \* \* \*$`)

// checkCronJob: a run each night that is not made up for by day, does not meet the next one, and leaves its answer.
func checkCronJob(r *report, c *batchv1.CronJobSpec) {
	const day = 24 * 60 * 60
	r.must(daily.MatchString(c.Schedule), "schedule", "%q does not run every day", c.Schedule)
	r.must(c.TimeZone != nil, "timeZone", "is missing: it would be that of the controller, whichever that is")
	r.must(c.ConcurrencyPolicy == batchv1.ForbidConcurrent, "concurrencyPolicy", "two runs at a time would load the source twice")
	r.must(c.StartingDeadlineSeconds != nil, "startingDeadlineSeconds", "is missing: after a hundred missed starts the controller gives up for good")
	deadline := value(c.StartingDeadlineSeconds) + value(c.JobTemplate.Spec.ActiveDeadlineSeconds)
	r.must(deadline < day, "activeDeadlineSeconds", "a run that began as late as it may would still go on when the next one is due, which is then left out")
	r.must(value(c.SuccessfulJobsHistoryLimit) > 0 && value(c.FailedJobsHistoryLimit) > 0, "failedJobsHistoryLimit", "nothing says how many answers are kept, or none are")
	checkJob(r, &c.JobTemplate.Spec)
	r.must(value(c.JobTemplate.Spec.BackoffLimit) > 0, "backoffLimit", "a server that does not answer for a moment would cost the whole night")
}

// Exit codes of the program that are final, and the one that is not: the source kept moving.
var final, inconclusive = []int32{2, 3}, int32(4)

func checkJob(r *report, j *batchv1.JobSpec) {
	r.must(j.ActiveDeadlineSeconds != nil, "activeDeadlineSeconds", "is missing: a run that hangs would hang for ever")
	r.must(j.BackoffLimit != nil, "backoffLimit", "is missing: six attempts are nobody's decision")
	r.must(j.Template.Spec.RestartPolicy == corev1.RestartPolicyNever, "restartPolicy", "is not Never, which podFailurePolicy needs")
	var fails []int32
	if j.PodFailurePolicy != nil {
		for _, rule := range j.PodFailurePolicy.Rules {
			if rule.Action == batchv1.PodFailurePolicyActionFailJob && rule.OnExitCodes != nil && rule.OnExitCodes.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn {
				fails = append(fails, rule.OnExitCodes.Values...)
			}
		}
	}
	for _, code := range final {
		r.must(slices.Contains(fails, code), "podFailurePolicy", "repeats a run whose answer is final: exit codes 2 and 3")
	}
	r.must(!slices.Contains(fails, inconclusive), "podFailurePolicy", "gives up although the answer may come: exit code %d", inconclusive)
}
