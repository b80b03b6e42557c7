package testenv

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// KafkaConfig says how to run one Apache Kafka broker. The zero value is a broker with empty temporary data and a free
// port.
type KafkaConfig struct {
	Dir  string // data folder, kept; empty: a temporary one, removed with the broker
	Port int    // 0: a free port

	// Properties override or extend server.properties.
	Properties map[string]string
	// Secured are the security protocols (SSL, SASL_SSL, SASL_PLAINTEXT) of listeners beside the plain one. Each is
	// called after its protocol, and Properties such as listener.name.sasl_ssl.sasl.enabled.mechanisms configure it.
	Secured []string
	// JVM holds further options of the Java virtual machine, such as -Xmx2g; a later one wins. The default is a heap
	// of 512 MB.
	JVM []string
}

// Kafka is a running Apache Kafka 4 broker that is its own controller, in a process of its own.
type Kafka struct {
	process
	cfg            KafkaConfig
	controllerPort int
	secured        []int // the ports of cfg.Secured
}

// StartKafka starts a broker, installing it first if the cache lacks it, and returns when it answers. Topics are not
// created by themselves unless Properties say so: a test that misspells one should fail.
func StartKafka(ctx context.Context, cfg KafkaConfig) (*Kafka, error) {
	installed, err := installKafka(ctx)
	if err != nil {
		return nil, err
	}
	if archive, err := kafkaClassArchive(ctx, installed); err == nil {
		cfg.JVM = append([]string{"-XX:SharedArchiveFile=" + archive}, cfg.JVM...)
	}
	return startKafka(ctx, installed, cfg)
}

func startKafka(ctx context.Context, installed string, cfg KafkaConfig) (*Kafka, error) {
	helper, err := helperPath(ctx)
	if err != nil {
		return nil, err
	}
	k := &Kafka{cfg: cfg, secured: make([]int, len(cfg.Secured))}
	ports := []*int{&k.cfg.Port, &k.controllerPort}
	for i := range k.secured {
		ports = append(ports, &k.secured[i])
	}
	if err := choosePorts("Kafka", ports...); err != nil {
		return nil, err
	}
	k.process = process{name: "Kafka", ready: k.probe, patience: 2 * time.Minute, grace: 15 * time.Second}
	if err := k.setDir(cfg.Dir); err != nil {
		return nil, err
	}
	command := []string{
		javaPath(), "-Xmx512m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", filepath.Join(installed, "libs", "*"),
	}
	command = append(command, cfg.JVM...)
	command = append(command, "kafka.Kafka", filepath.Join(k.dir, "server.properties"))
	if err := k.launch(ctx, helper, k.writeConfig, command...); err != nil {
		return nil, err
	}
	return k, nil
}

// Brokers returns the host:port to give to a client as its seed.
func (k *Kafka) Brokers() []string { return []string{address(k.cfg.Port)} }

// SecuredBrokers returns the same of the listener of one of the Secured protocols.
func (k *Kafka) SecuredBrokers(protocol string) []string {
	return []string{address(k.secured[slices.Index(k.cfg.Secured, protocol)])}
}

// probe asks for metadata. The broker accepts connections only once it is registered with its controller.
func (k *Kafka) probe(ctx context.Context) error {
	// A refused connection shows at once here, whereas the client would retry it with growing pauses.
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", k.Brokers()[0])
	if err != nil {
		return err
	}
	conn.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...))
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Ping(ctx)
}

// writeConfig writes server.properties and formats the data folder: a meta.properties is all that Kafka's storage
// tool would add, and it costs no second start of a virtual machine.
func (k *Kafka) writeConfig() error {
	data := filepath.Join(k.dir, "data")
	properties := kafkaProperties(data, address(k.cfg.Port), address(k.controllerPort))
	for i, protocol := range k.cfg.Secured {
		listener := "," + protocol + "://" + address(k.secured[i])
		properties["listeners"] += listener
		properties["advertised.listeners"] += listener
		properties["listener.security.protocol.map"] += "," + protocol + ":" + protocol
	}
	maps.Copy(properties, k.cfg.Properties)
	files := map[string]map[string]string{filepath.Join(k.dir, "server.properties"): properties}
	if meta := filepath.Join(data, "meta.properties"); !isFile(meta) {
		files[meta] = map[string]string{
			"version": "1", "node.id": "1",
			"cluster.id":   "cHJvamVjdG9yLWRldnN0YQ", // both are 16 bytes in base64
			"directory.id": "cHJvamVjdG9yLWRldnN0Yg",
		}
	}
	for name, entries := range files {
		var text strings.Builder
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			fmt.Fprintf(&text, "%s=%s\n", key, entries[key])
		}
		if err := os.WriteFile(name, []byte(text.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func kafkaProperties(data, client, controller string) map[string]string {
	return map[string]string{
		"process.roles":                  "broker,controller",
		"node.id":                        "1",
		"listeners":                      "CLIENT://" + client + ",CONTROLLER://" + controller,
		"advertised.listeners":           "CLIENT://" + client,
		"listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"inter.broker.listener.name":     "CLIENT",
		"controller.listener.names":      "CONTROLLER",
		"controller.quorum.voters":       "1@" + controller,
		"log.dirs":                       data,
		"auto.create.topics.enable":      "false",

		// One broker has one replica, and a laptop need not keep fifty offset partitions.
		"offsets.topic.replication.factor":                 "1",
		"offsets.topic.num.partitions":                     "4",
		"transaction.state.log.replication.factor":         "1",
		"transaction.state.log.min.isr":                    "1",
		"transaction.state.log.num.partitions":             "4",
		"share.coordinator.state.topic.replication.factor": "1",
		"share.coordinator.state.topic.min.isr":            "1",
		"share.coordinator.state.topic.num.partitions":     "1",
		"group.initial.rebalance.delay.ms":                 "0", // 3 s in production, so that a group fills up first
		// A killed broker may register again only when its last session has ended, after 9 s by default.
		"broker.session.timeout.ms":    "3000",
		"broker.heartbeat.interval.ms": "500",
	}
}

// kafkaClassArchive returns the JVM's archive of the broker's parsed classes, made once by a broker that starts and
// ends. With it a start takes 2.3 s of processor time instead of 5.5 s (Java 17).
func kafkaClassArchive(ctx context.Context, installed string) (path string, err error) {
	path = filepath.Join(installed, "kafka.jsa")
	if isFile(path) {
		return path, nil
	}
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	release, err := lock(ctx, cache, "kafka-classes")
	if err != nil {
		return "", err
	}
	defer release()
	if isFile(path) {
		return path, nil
	}
	k, err := startKafka(ctx, installed, KafkaConfig{JVM: []string{"-XX:ArchiveClassesAtExit=" + path + ".partial"}})
	if err != nil {
		return "", err
	}
	if err := errors.Join(k.terminate(), k.Stop()); err != nil {
		return "", err
	}
	return path, os.Rename(path+".partial", path)
}

// javaPath returns the java of $JAVA_HOME or of the path.
func javaPath() string {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		return filepath.Join(home, "bin", "java")
	}
	if path, err := exec.LookPath("java"); err == nil {
		return path
	}
	return "java"
}
