// Package repository_test holds the files at the top of the repository together: what one of them promises, another
// one or the program must keep.
package repository_test

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/chprojector/projector/internal/config"
)

// loadCompose reads docker-compose.yml as `docker compose` does: strictly, against the specification's schema, with
// references resolved.
func loadCompose(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"docker-compose.yml"})
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

func TestComposeServices(t *testing.T) {
	project := loadCompose(t)
	want := []string{"clickhouse", "kafka", "mysql", "projector", "relay", "schema", "topic"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(project.Services))); diff != "" {
		t.Errorf("services: -want +got:\n%s", diff)
	}
	for name, service := range project.Services {
		repository, tag, _ := strings.Cut(service.Image, ":")
		if tag == "" || tag == "latest" {
			t.Errorf("%s: image %q changes without a commit; pin a version", name, service.Image)
		}
		if registry, _, _ := strings.Cut(repository, "/"); strings.Contains(registry, ".") {
			t.Errorf("%s: image %q names a registry; leave that to the engine's configuration", name, service.Image)
		}
		for _, mount := range service.Volumes {
			if mount.Type != types.VolumeTypeBind {
				continue
			}
			if _, err := os.Stat(mount.Source); err != nil {
				t.Errorf("%s: the engine would make a folder of a mount that is not there: %v", name, err)
			}
			if !mount.ReadOnly {
				t.Errorf("%s: %s is the repository's and must be mounted read-only", name, mount.Source)
			}
		}
	}
	for name, secret := range project.Secrets {
		if _, err := os.Stat(secret.File); err != nil {
			t.Errorf("secret %s: %v", name, err)
		}
	}
}

// Whoever waits for a server must wait for its answer, and whoever waits for a one-shot for its success.
func TestComposeStartsInOrder(t *testing.T) {
	project := loadCompose(t)
	conditions := map[string]map[string]string{}
	for name, service := range project.Services {
		for on, dependency := range service.DependsOn {
			if conditions[name] == nil {
				conditions[name] = map[string]string{}
			}
			conditions[name][on] = dependency.Condition
			if check := project.Services[on].HealthCheck; dependency.Condition == types.ServiceConditionHealthy &&
				(check == nil || len(check.Test) < 2 || check.Disable) {
				t.Errorf("%s waits until %s is healthy, which has no health check", name, on)
			}
		}
	}
	want := map[string]map[string]string{
		"topic":  {"kafka": types.ServiceConditionHealthy},
		"schema": {"clickhouse": types.ServiceConditionHealthy},
		"projector": {
			"kafka":      types.ServiceConditionHealthy,
			"clickhouse": types.ServiceConditionHealthy,
			"topic":      types.ServiceConditionCompletedSuccessfully,
			"schema":     types.ServiceConditionCompletedSuccessfully,
		},
		"relay": {
			"kafka": types.ServiceConditionHealthy,
			"mysql": types.ServiceConditionHealthy,
			"topic": types.ServiceConditionCompletedSuccessfully,
		},
	}
	if diff := cmp.Diff(want, conditions); diff != "" {
		t.Errorf("depends_on: -want +got:\n%s", diff)
	}
	for _, server := range []string{"kafka", "clickhouse", "mysql"} {
		if project.Services[server].HealthCheck == nil {
			t.Errorf("%s has no health check", server)
		}
	}
}

// config.yaml must reach the servers from outside, and with the overrides of docker-compose.yml from inside.
func TestComposeServesTheConfiguration(t *testing.T) {
	project := loadCompose(t)
	outside, err := config.Load(config.Input{Path: "config.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	published := map[string]string{} // host:port -> service
	for name, service := range project.Services {
		for _, port := range service.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %s is open to the network: these servers have no passwords", name, port.Published)
			}
			published[net.JoinHostPort("localhost", port.Published)] = name
		}
	}
	for service, addresses := range map[string][]string{
		"kafka":      outside.Kafka.Brokers,
		"clickhouse": outside.ClickHouse.Addresses,
		"projector":  {"localhost" + outside.HTTP.Address},
		"mysql":      {"localhost:3306"},
		"relay":      {"localhost:8081"},
	} {
		for _, address := range addresses {
			if published[address] != service {
				t.Errorf("%s is published by %q, want by %s", address, published[address], service)
			}
		}
	}

	for _, name := range []string{"schema", "projector", "relay"} {
		service := project.Services[name]
		var environ []string
		for variable, value := range service.Environment {
			environ = append(environ, fmt.Sprintf("%s=%s", variable, *value))
		}
		inside, err := config.Load(config.Input{Path: "config.yaml", Environ: environ})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := *outside
		want.Kafka.Brokers, want.ClickHouse.Addresses = []string{"kafka:19092"}, []string{"clickhouse:9000"}
		if diff := cmp.Diff(mustYAML(t, &want), mustYAML(t, inside)); diff != "" {
			t.Errorf("%s: effective configuration: -want +got:\n%s", name, diff)
		}
		if mounts := service.Volumes; len(mounts) != 1 || filepath.Base(mounts[0].Source) != "config.yaml" ||
			mounts[0].Target != *service.Environment["PROJECTOR_CONFIG"] {
			t.Errorf("%s: config.yaml is not mounted where PROJECTOR_CONFIG points: %v", name, mounts)
		}
		for _, shard := range inside.Source.Shards {
			found := slices.ContainsFunc(service.Secrets, func(s types.ServiceSecretConfig) bool {
				return s.Target == shard.DSNFile
			})
			if !found {
				t.Errorf("%s: no secret at %s for the shard %s", name, shard.DSNFile, shard.Name)
			}
		}
	}
	for _, name := range []string{"projector", "relay"} {
		grace, drain := project.Services[name].StopGracePeriod, time.Duration(outside.DrainTimeout)
		if grace == nil || time.Duration(*grace) <= drain {
			t.Errorf("%s is killed after %v, before its drain_timeout of %v has passed", name, grace, drain)
		}
	}
}

// A client that bootstraps at a listener is sent on to the address that it advertises.
func TestComposeKafkaListeners(t *testing.T) {
	environment := loadCompose(t).Services["kafka"].Environment
	listeners := func(variable string) map[string]string {
		all := map[string]string{}
		for entry := range strings.SplitSeq(*environment[variable], ",") {
			name, address, _ := strings.Cut(entry, "://")
			all[name] = address
		}
		return all
	}
	bound, advertised := listeners("KAFKA_LISTENERS"), listeners("KAFKA_ADVERTISED_LISTENERS")
	want := map[string]string{"HOST": "localhost:9092", "INTERNAL": "kafka:19092"}
	if diff := cmp.Diff(want, advertised); diff != "" {
		t.Errorf("advertised listeners: -want +got:\n%s", diff)
	}
	for name, address := range advertised {
		if _, port, _ := net.SplitHostPort(address); bound[name] != ":"+port {
			t.Errorf("%s advertises port %s and listens on %q", name, port, bound[name])
		}
	}
}

func mustYAML(t *testing.T, c *config.Config) string {
	t.Helper()
	text, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
