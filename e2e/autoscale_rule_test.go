package e2e

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"strconv"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	// hpaPeriod is how often the HorizontalPodAutoscaler decides: --horizontal-pod-autoscaler-sync-period.
	hpaPeriod = 15 * time.Second
	// hpaTolerance is by how much the metric may miss its target before anything is done about it.
	hpaTolerance = 0.1
)

// scaledObject is what is read of the file that KEDA gets. A rule that is not read is not simulated, so a field of
// behavior that is unknown here is an error.
type scaledObject struct {
	Metadata struct{ Annotations map[string]string }
	Spec     struct {
		PollingInterval int      `yaml:"pollingInterval"`
		MinReplicaCount int      `yaml:"minReplicaCount"`
		MaxReplicaCount int      `yaml:"maxReplicaCount"`
		CooldownPeriod  *float64 `yaml:"cooldownPeriod"`
		Advanced        struct {
			HorizontalPodAutoscalerConfig struct {
				Behavior yaml.Node
			} `yaml:"horizontalPodAutoscalerConfig"`
		}
		Triggers []struct {
			Type     string
			Metadata map[string]string
		}
	}
}

// behavior is autoscaling/v2's, of which nothing is left to defaults here.
type behavior struct {
	ScaleUp   direction `yaml:"scaleUp"`
	ScaleDown direction `yaml:"scaleDown"`
}

// direction is what slows the scaler down in one direction.
type direction struct {
	Window   int      `yaml:"stabilizationWindowSeconds"`
	Policies []policy // the one that allows most counts: selectPolicy Max, the default
}

// policy bounds the change within a period.
type policy struct {
	Type   string // Pods or Percent
	Value  int
	Period int `yaml:"periodSeconds"`
}

// scaler is the rule by which KEDA and the HorizontalPodAutoscaler that it makes choose the number of replicas. It knows
// no clock: times are those of the cluster, since any moment. Its sources are
//
//   - https://keda.sh/docs/2.17/scalers/apache-kafka/ (lagThreshold, allowIdleConsumers) and
//     https://keda.sh/docs/2.17/reference/scaledobject-spec/ (pollingInterval, cooldownPeriod)
//   - https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/, of which each method names
//     the section
//   - the controller itself where these leave something open: pkg/controller/podautoscaler/horizontal.go and
//     replica_calculator.go
type scaler struct {
	least, most int
	threshold   int64 // lag for each replica
	partitions  int64
	up, down    direction

	recommended []recommendation
	changes     []change
}

type recommendation struct {
	at       time.Duration
	replicas int
}

type change struct {
	at time.Duration
	by int
}

// readScaler is the scaler of a ScaledObject with one trigger.
func readScaler(text []byte) (*scaler, error) {
	var o scaledObject
	if err := yaml.Unmarshal(text, &o); err != nil {
		return nil, err
	}
	spec := o.Spec
	node, err := yaml.Marshal(&spec.Advanced.HorizontalPodAutoscalerConfig.Behavior)
	if err != nil {
		return nil, err
	}
	var b behavior
	strict := yaml.NewDecoder(bytes.NewReader(node))
	strict.KnownFields(true)
	if err := strict.Decode(&b); err != nil {
		return nil, fmt.Errorf("behavior: %w", err)
	}
	switch {
	case len(spec.Triggers) != 1 || spec.Triggers[0].Type != "kafka":
		return nil, fmt.Errorf("want one trigger of type kafka, not %v", spec.Triggers)
	case time.Duration(spec.PollingInterval)*time.Second != hpaPeriod:
		// KEDA asks Kafka whenever the HPA does, unless useCachedMetrics is set. Another number would say what is not.
		return nil, fmt.Errorf("pollingInterval is %d and the HPA asks every %v", spec.PollingInterval, hpaPeriod)
	case spec.MinReplicaCount < 1 || spec.CooldownPeriod != nil:
		// The cooldown is KEDA's, from one replica to none; all else is the HPA's.
		return nil, fmt.Errorf("scaling to zero is not simulated: minReplicaCount %d, cooldownPeriod %v", spec.MinReplicaCount, spec.CooldownPeriod)
	}
	s := &scaler{least: spec.MinReplicaCount, most: spec.MaxReplicaCount, up: b.ScaleUp, down: b.ScaleDown}
	if s.threshold, err = strconv.ParseInt(spec.Triggers[0].Metadata["lagThreshold"], 10, 64); err != nil {
		return nil, fmt.Errorf("lagThreshold: %w", err)
	}
	if s.partitions, err = strconv.ParseInt(o.Metadata.Annotations["projector/partitions"], 10, 64); err != nil {
		return nil, fmt.Errorf("projector/partitions: %w", err)
	}
	for _, d := range []direction{s.up, s.down} {
		if len(d.Policies) == 0 {
			return nil, fmt.Errorf("behavior: %+v has no policies", d)
		}
		for _, p := range d.Policies {
			if (p.Type != "Pods" && p.Type != "Percent") || p.Value < 1 || p.Period < 1 {
				return nil, fmt.Errorf("behavior: %+v is no policy", p)
			}
		}
	}
	return s, nil
}

// deployedScaler is the scaler of deploy/kubernetes/overlays/keda.
func deployedScaler(t testing.TB) *scaler {
	t.Helper()
	text, err := os.ReadFile("../deploy/kubernetes/overlays/keda/scaledobject.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := readScaler(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// decide is one turn of the controller: the number of replicas from now on.
func (s *scaler) decide(now time.Duration, lag int64, current int) int {
	wanted := s.wanted(lag, current)
	if s.recommended == nil {
		// A controller that begins takes what it finds for a recommendation (recordInitialRecommendation).
		s.recommended = []recommendation{{now, current}}
	}
	next := s.limited(now, current, s.stabilized(now, current, wanted))
	s.recommended = append(s.recommended, recommendation{now, wanted})
	if next != current {
		s.changes = append(s.changes, change{now, next - current})
	}
	return next
}

// wanted is "Algorithm details" for an external metric with an AverageValue: as many replicas as the target divides the
// lag into, unless the lag is within the tolerance of what the present ones should have. KEDA counts no more lag than a
// threshold for each partition.
func (s *scaler) wanted(lag int64, current int) int {
	lag = min(lag, s.partitions*s.threshold)
	if ratio := float64(lag) / float64(s.threshold*int64(current)); math.Abs(1-ratio) <= hpaTolerance {
		return current
	}
	return int((lag + s.threshold - 1) / s.threshold)
}

// stabilized is "Stabilization window": up only to the least that was recommended within the window, down only to the
// most.
func (s *scaler) stabilized(now time.Duration, current, wanted int) int {
	lowest, highest := wanted, wanted
	for _, r := range s.recommended {
		if r.at > now-seconds(s.up.Window) {
			lowest = min(lowest, r.replicas)
		}
		if r.at > now-seconds(s.down.Window) {
			highest = max(highest, r.replicas)
		}
	}
	return min(max(current, lowest), highest)
}

// limited is "Scaling policies", and the bounds. A policy speaks of the replicas at the beginning of its period.
func (s *scaler) limited(now time.Duration, current, wanted int) int {
	began := func(p policy) int {
		n := current
		for _, c := range s.changes {
			if c.at > now-seconds(p.Period) {
				n -= c.by
			}
		}
		return n
	}
	switch {
	case wanted > current:
		limit := current
		for _, p := range s.up.Policies {
			if n := began(p); p.Type == "Pods" {
				limit = max(limit, n+p.Value)
			} else {
				limit = max(limit, int(math.Ceil(float64(n)*(1+float64(p.Value)/100))))
			}
		}
		return min(wanted, limit, s.most)
	case wanted < current:
		limit := current
		for _, p := range s.down.Policies {
			if n := began(p); p.Type == "Pods" {
				limit = min(limit, n-p.Value)
			} else {
				limit = min(limit, int(float64(n)*(1-float64(p.Value)/100)))
			}
		}
		return max(wanted, limit, s.least)
	}
	return current
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// turns is how often a number of replicas that changed has changed its direction: once for a load that comes and goes.
func turns(changes []change) (n int) {
	for i, c := range changes {
		if i > 0 && (c.by > 0) != (changes[i-1].by > 0) {
			n++
		}
	}
	return n
}
