package check

import (
	"slices"
	"strconv"
	"strings"

	kedav1alpha1 "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

// slowest is the least time, in seconds, that a scaler must look back before it takes a pod away.
const slowest = 600

// checkScalers: what changes the number of pods must not count beyond the partitions, nor tear at the group.
func checkScalers(r *report, m *Manifests, cfg *Config) {
	scaled := map[string]bool{}
	for _, s := range m.ScaledObjects {
		r.at("ScaledObject " + s.Name)
		target := ""
		if s.Spec.ScaleTargetRef != nil {
			target = s.Spec.ScaleTargetRef.Name
		}
		scaled[target] = true
		checkBounds(r, cfg, s.Annotations, s.Spec.MinReplicaCount, s.Spec.MaxReplicaCount)
		fallback := s.Spec.Fallback
		r.must(fallback != nil && is(s.Spec.MinReplicaCount, fallback.Replicas) && fallback.Behavior == "currentReplicasIfHigher",
			"fallback", "may take pods away while Kafka cannot be asked")
		var behavior *autoscalingv2.HorizontalPodAutoscalerBehavior
		if a := s.Spec.Advanced; a != nil && a.HorizontalPodAutoscalerConfig != nil {
			behavior = a.HorizontalPodAutoscalerConfig.Behavior
		}
		checkBehavior(r, behavior)
		checkTriggers(r, s.Spec.Triggers, cfg)
	}
	for _, h := range m.Autoscalers {
		r.at("HorizontalPodAutoscaler " + h.Name)
		scaled[h.Spec.ScaleTargetRef.Name] = true
		checkBounds(r, cfg, h.Annotations, h.Spec.MinReplicas, &h.Spec.MaxReplicas)
		checkBehavior(r, h.Spec.Behavior)
	}
	for _, d := range m.Deployments {
		r.at("Deployment " + d.Name)
		r.must(!scaled[d.Name] || d.Spec.Replicas == nil, "replicas", "is set although a scaler owns the number: every apply would set it back")
		delete(scaled, d.Name)
	}
	for target := range scaled {
		r.at("").add("scaleTargetRef", "there is no Deployment %q", target)
	}
}

func checkBounds(r *report, cfg *Config, annotations map[string]string, least, most *int32) {
	partitions, err := strconv.Atoi(annotations["projector/partitions"])
	r.must(err == nil, "annotations", "projector/partitions does not say how many partitions there are")
	r.must(cfg.Lanes > 0, "lanes", "is 0 in the configuration: how many pods are of use then depends on the node")
	r.must(least != nil && *least >= 2, "minimum", "is below 2: a node that dies would stop everything for a session timeout")
	r.must(most != nil && int(*most)*cfg.Lanes <= partitions, "maximum", "%d pods of %d lanes are more than %d partitions", value(most), cfg.Lanes, partitions)
}

func checkBehavior(r *report, b *autoscalingv2.HorizontalPodAutoscalerBehavior) {
	if b == nil || b.ScaleDown == nil || b.ScaleUp == nil {
		r.add("behavior", "is missing: the default takes all pods away at once")
		return
	}
	r.must(value(b.ScaleDown.StabilizationWindowSeconds) >= slowest, "scaleDown", "looks back less than %d s", slowest)
	r.must(len(b.ScaleDown.Policies) == 1 && b.ScaleDown.Policies[0].Type == autoscalingv2.PodsScalingPolicy && b.ScaleDown.Policies[0].Value == 1, "scaleDown", "takes more than one pod at a time")
	r.must(value(b.ScaleUp.StabilizationWindowSeconds) > 0, "scaleUp", "follows every batch")
}

// checkTriggers: the scaler counts what the consumer will read, from where it will begin.
func checkTriggers(r *report, triggers []kedav1alpha1.ScaleTriggers, cfg *Config) {
	groups := cfg.Groups()
	for _, t := range triggers {
		r.must(t.MetricType == "" || t.MetricType == autoscalingv2.AverageValueMetricType, "metricType", "fallback needs AverageValue")
		if t.Type == "prometheus" { // beside the lag: what keeps pods while there is none
			r.must(strings.Contains(t.Metadata["query"], "projector_records_total{"), "query", "%q is not the rate of events, which does not depend on the number of pods", t.Metadata["query"])
			continue
		}
		if t.Type != "kafka" {
			r.add("triggers", "the type %s is none that a rule knows", t.Type)
			continue
		}
		group, known := t.Metadata["consumerGroup"], false
		if topics, ok := cfg.Groups()[group]; ok {
			known = true
			r.must(slices.Contains(topics, t.Metadata["topic"]), "topic", "%s does not read %q", group, t.Metadata["topic"])
			delete(groups, group)
		}
		r.must(known, "consumerGroup", "%q is no group of the configuration", group)
		r.must(t.Metadata["offsetResetPolicy"] == cfg.Kafka.Start, "offsetResetPolicy", "%q is not kafka.start (%s)", t.Metadata["offsetResetPolicy"], cfg.Kafka.Start)
		r.must(t.Metadata["bootstrapServers"] == strings.Join(cfg.Kafka.Brokers, ","), "bootstrapServers", "%q is not kafka.brokers", t.Metadata["bootstrapServers"])
		threshold, err := strconv.Atoi(t.Metadata["lagThreshold"])
		r.must(err == nil && threshold >= cfg.Lanes*cfg.Batch.Rows, "lagThreshold", "%q is below lanes × batch.rows (%d): what is in hand is no backlog", t.Metadata["lagThreshold"], cfg.Lanes*cfg.Batch.Rows)
		r.must(t.Metadata["allowIdleConsumers"] == "false", "allowIdleConsumers", "is not false")
	}
	for group := range groups {
		r.add("triggers", "nobody counts the lag of %s", group)
	}
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// portOf is the port of an address.
func portOf(address string) int32 {
	port, _ := strconv.ParseInt(address[strings.LastIndexByte(address, ':')+1:], 10, 32)
	return int32(port)
}
