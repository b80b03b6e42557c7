package check

import (
	"fmt"

	kedav1alpha1 "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Manifests are the objects of one overlay.
type Manifests struct {
	Namespaces      []*corev1.Namespace
	ServiceAccounts []*corev1.ServiceAccount
	ConfigMaps      []*corev1.ConfigMap
	Secrets         []*corev1.Secret
	Services        []*corev1.Service
	Policies        []*networkingv1.NetworkPolicy
	Budgets         []*policyv1.PodDisruptionBudget
	Deployments     []*appsv1.Deployment
	ScaledObjects   []*kedav1alpha1.ScaledObject
	Autoscalers     []*autoscalingv2.HorizontalPodAutoscaler
	Jobs            []*batchv1.Job
	CronJobs        []*batchv1.CronJob
	Others          []runtime.Object // of kinds that no rule knows
}

// Workload is what starts pods.
type Workload struct {
	Name string // kind and name
	Pod  *corev1.PodTemplateSpec
}

// Container is the workload's only container.
func (w Workload) Container() *corev1.Container { return &w.Pod.Spec.Containers[0] }

// Workloads returns everything that starts pods.
func (m *Manifests) Workloads() (all []Workload) {
	for _, d := range m.Deployments {
		all = append(all, Workload{"Deployment " + d.Name, &d.Spec.Template})
	}
	for _, j := range m.Jobs {
		all = append(all, Workload{"Job " + j.Name, &j.Spec.Template})
	}
	for _, c := range m.CronJobs {
		all = append(all, Workload{"CronJob " + c.Name, &c.Spec.JobTemplate.Spec.Template})
	}
	return all
}

// Render builds an overlay as `kubectl kustomize` does and returns its objects as YAML.
func Render(folder string) ([][]byte, error) {
	built, err := krusty.MakeKustomizer(&krusty.Options{
		LoadRestrictions: types.LoadRestrictionsRootOnly,
		PluginConfig:     types.DisabledPluginConfig(),
	}).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", folder, err)
	}
	var objects [][]byte
	for _, r := range built.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			return nil, fmt.Errorf("build %s: %s: %w", folder, r.CurId(), err)
		}
		objects = append(objects, text)
	}
	return objects, nil
}

// Decode reads objects strictly: a field that the API does not have, or has twice, is an error.
func Decode(objects [][]byte) (*Manifests, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme,
		autoscalingv2.AddToScheme, kedav1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	m := new(Manifests)
	for _, text := range objects {
		object, _, err := decoder.Decode(text, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("decode an object: %w\n%s", err, text)
		}
		m.add(object)
	}
	return m, nil
}

func (m *Manifests) add(object runtime.Object) {
	switch o := object.(type) {
	case *corev1.Namespace:
		m.Namespaces = append(m.Namespaces, o)
	case *corev1.ServiceAccount:
		m.ServiceAccounts = append(m.ServiceAccounts, o)
	case *corev1.ConfigMap:
		m.ConfigMaps = append(m.ConfigMaps, o)
	case *corev1.Secret:
		m.Secrets = append(m.Secrets, o)
	case *corev1.Service:
		m.Services = append(m.Services, o)
	case *networkingv1.NetworkPolicy:
		m.Policies = append(m.Policies, o)
	case *policyv1.PodDisruptionBudget:
		m.Budgets = append(m.Budgets, o)
	case *appsv1.Deployment:
		m.Deployments = append(m.Deployments, o)
	case *kedav1alpha1.ScaledObject:
		m.ScaledObjects = append(m.ScaledObjects, o)
	case *autoscalingv2.HorizontalPodAutoscaler:
		m.Autoscalers = append(m.Autoscalers, o)
	case *batchv1.Job:
		m.Jobs = append(m.Jobs, o)
	case *batchv1.CronJob:
		m.CronJobs = append(m.CronJobs, o)
	default:
		m.Others = append(m.Others, o)
	}
}
