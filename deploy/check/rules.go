package check

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// Image is what the Dockerfile says of the image.
type Image struct {
	User int64
	Port int32
}

// Check returns everything in m that breaks a rule of ours. cfg is the effective configuration of m's ConfigMap.
func Check(m *Manifests, cfg *Config, image Image) []string {
	r := new(report)
	for _, o := range m.Others {
		r.add("", "an object that no rule knows: %s", o.GetObjectKind().GroupVersionKind())
	}
	checkSecrets(r, m)
	for _, w := range m.Workloads() {
		if r.at(w.Name); len(w.Pod.Spec.Containers) != 1 || len(w.Pod.Spec.InitContainers) > 0 {
			r.add("", "has %d containers, want one", len(w.Pod.Spec.Containers))
			continue
		}
		checkPod(r, m, w, image)
		checkVolumes(r, m, w)
		checkNetwork(r, m, w, cfg)
		checkShards(r, w, cfg)
	}
	for _, d := range m.Deployments {
		checkDeployment(r.at("Deployment "+d.Name), d, cfg)
	}
	for _, s := range m.Services {
		checkSelects(r.at("Service "+s.Name), m, labels.SelectorFromSet(s.Spec.Selector))
	}
	for _, b := range m.Budgets {
		checkSelects(r.at("PodDisruptionBudget "+b.Name), m, selector(b.Spec.Selector))
	}
	checkJobs(r, m)
	checkScalers(r, m, cfg)
	return r.problems
}

// report collects what is wrong, and where.
type report struct {
	where    string
	problems []string
}

func (r *report) at(where string) *report {
	r.where = where
	return r
}

func (r *report) add(field, format string, args ...any) {
	place := strings.Trim(r.where+" "+field, " ")
	r.problems = append(r.problems, strings.TrimPrefix(place+": "+fmt.Sprintf(format, args...), ": "))
}

// must adds the problem unless ok.
func (r *report) must(ok bool, field, format string, args ...any) {
	if !ok {
		r.add(field, format, args...)
	}
}

// checkSecrets: a secret is referred to and never part of what is applied, for that ends in a repository.
func checkSecrets(r *report, m *Manifests) {
	for _, s := range m.Secrets {
		r.at("Secret "+s.Name).add("", "is in the repository; refer to one that is created elsewhere")
	}
	for _, c := range m.ConfigMaps {
		r.at("ConfigMap " + c.Name)
		for file, text := range c.Data {
			for _, key := range secretKeys(text) {
				r.add(file, "%s holds a secret; name its file with %s_file", key, key)
			}
		}
	}
	for _, w := range m.Workloads() {
		r.at(w.Name)
		for _, c := range w.Pod.Spec.Containers {
			for _, e := range c.Env {
				name := strings.ToLower(e.Name)
				secret := slices.ContainsFunc(secretNames, func(s string) bool { return strings.HasSuffix(name, s) })
				r.must(!secret || e.Value == "", "env "+e.Name, "holds a secret")
			}
		}
	}
}

// checkPod: what every pod of ours is. The restricted profile is judged by the admission controller's own code.
func checkPod(r *report, m *Manifests, w Workload, image Image) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		r.add("", "%v", err)
		return
	}
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	for _, result := range evaluator.EvaluatePod(level, &w.Pod.ObjectMeta, &w.Pod.Spec) {
		r.must(result.Allowed, "", "the restricted profile refuses it: %s: %s", result.ForbiddenReason, result.ForbiddenDetail)
	}
	for _, n := range m.Namespaces {
		r.must(n.Labels["pod-security.kubernetes.io/enforce"] == "restricted", "namespace", "does not enforce the restricted profile")
	}
	pod, c := &w.Pod.Spec, w.Container()
	r.must(pod.SecurityContext != nil && is(pod.SecurityContext.RunAsUser, image.User), "runAsUser", "is not %d, the image's own", image.User)
	r.must(c.SecurityContext != nil && is(c.SecurityContext.ReadOnlyRootFilesystem, true), "readOnlyRootFilesystem", "is not set")
	r.must(is(pod.AutomountServiceAccountToken, false), "automountServiceAccountToken", "is not false: the program asks nothing of Kubernetes")
	r.must(slices.ContainsFunc(m.ServiceAccounts, func(s *corev1.ServiceAccount) bool { return s.Name == pod.ServiceAccountName }),
		"serviceAccountName", "%q is not defined here", pod.ServiceAccountName)

	repository, tag, _ := strings.Cut(c.Image, ":")
	r.must(repository == "chprojector/projector" && tag != "" && tag != "latest", "image", "%q names no release", c.Image)

	memory := c.Resources.Limits.Memory()
	r.must(!memory.IsZero() && memory.Equal(*c.Resources.Requests.Memory()), "resources", "memory is not guaranteed: request what is the limit")
	r.must(!c.Resources.Requests.Cpu().IsZero(), "resources", "no CPU is requested")
	r.must(c.Resources.Limits.Cpu().IsZero(), "resources", "a CPU limit throttles heartbeats")
	i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "GOMEMLIMIT" })
	r.must(i >= 0 && c.Env[i].ValueFrom != nil && c.Env[i].ValueFrom.ResourceFieldRef != nil &&
		c.Env[i].ValueFrom.ResourceFieldRef.Resource == "limits.memory" && c.Env[i].ValueFrom.ResourceFieldRef.ContainerName == c.Name,
		"env GOMEMLIMIT", "does not come from this container's limits.memory")
}

// checkVolumes: everything mounted is there, and the configuration is the one that is applied with it.
func checkVolumes(r *report, m *Manifests, w Workload) {
	mounted := map[string]bool{}
	config := ""
	for _, mount := range w.Container().VolumeMounts {
		mounted[mount.Name] = true
		r.must(mount.ReadOnly, "volumeMounts "+mount.Name, "is writable")
		i := slices.IndexFunc(w.Pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		if i < 0 {
			r.add("volumeMounts "+mount.Name, "is no volume")
			continue
		}
		if c := w.Pod.Spec.Volumes[i].ConfigMap; c != nil {
			known := slices.IndexFunc(m.ConfigMaps, func(d *corev1.ConfigMap) bool { return d.Name == c.Name })
			if known < 0 {
				r.add("volumes "+mount.Name, "the ConfigMap %s is not defined here", c.Name)
				continue
			}
			for file := range m.ConfigMaps[known].Data {
				config = mount.MountPath + "/" + file
			}
		}
	}
	for _, v := range w.Pod.Spec.Volumes {
		r.must(mounted[v.Name], "volumes "+v.Name, "is not mounted")
	}
	i := slices.IndexFunc(w.Container().Env, func(e corev1.EnvVar) bool { return e.Name == "PROJECTOR_CONFIG" })
	r.must(i >= 0 && config != "" && w.Container().Env[i].Value == config, "env PROJECTOR_CONFIG", "is not %q", config)
}

// checkNetwork: the policies let the pod through to the servers that its configuration names.
func checkNetwork(r *report, m *Manifests, w Workload, cfg *Config) {
	open := map[string]bool{}
	governed := false
	for _, p := range m.Policies {
		if !selector(&p.Spec.PodSelector).Matches(labels.Set(w.Pod.Labels)) {
			continue
		}
		governed = governed || slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) && slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		for _, e := range p.Spec.Egress {
			for _, port := range e.Ports {
				open[port.Port.String()] = true
			}
		}
	}
	r.must(governed, "NetworkPolicy", "none governs this pod")
	for _, address := range slices.Concat(cfg.Kafka.Brokers, cfg.ClickHouse.Addresses) {
		port := address[strings.LastIndexByte(address, ':')+1:]
		r.must(open[port], "NetworkPolicy", "does not let it through to %s", address)
	}
	readsSource := slices.ContainsFunc(w.Pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "source" })
	r.must(readsSource == open["3306"], "NetworkPolicy", "MySQL is open: %v; the pod has its secret: %v", open["3306"], readsSource)
}

// checkShards: a relay is given shards that the configuration has, and has the secret of.
func checkShards(r *report, w Workload, cfg *Config) {
	for _, arg := range w.Container().Args {
		if name, ok := strings.CutPrefix(arg, "--shard="); ok {
			known := slices.ContainsFunc(cfg.Source.Shards, func(s Shard) bool { return s.Name == name && s.DSNFile == "/run/secrets/source/"+name })
			r.must(known, "args", "%s is no shard of the configuration, or its dsn_file is not in /run/secrets/source", name)
		}
	}
}

// checkSelects: a selector that selects nothing protects or publishes nothing, and says nothing.
func checkSelects(r *report, m *Manifests, s labels.Selector) {
	r.must(slices.ContainsFunc(m.Workloads(), func(w Workload) bool { return s.Matches(labels.Set(w.Pod.Labels)) }), "selector", "%s selects no pod", s)
}

// selector is nothing's for a selector that is missing or malformed.
func selector(s *metav1.LabelSelector) labels.Selector {
	parsed, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return parsed
}

// is reports whether a value is given and is want.
func is[T comparable](value *T, want T) bool { return value != nil && *value == want }
