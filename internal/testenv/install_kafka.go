package testenv

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// kafkaVersion is the Maven version of org.apache.kafka:kafka_2.13. It runs on Java 17 or newer.
const kafkaVersion = "4.3.1"

const kafkaPOM = `<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>devstack</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>` + kafkaVersion + `</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies>
</project>
`

// installKafka returns the folder whose libs hold the broker's jars, fetching them with Maven if they are not there.
func installKafka(ctx context.Context) (dir string, err error) {
	dir, err = install(ctx, "kafka-"+kafkaVersion, func(dir string) error {
		if err := os.WriteFile(filepath.Join(dir, "pom.xml"), []byte(kafkaPOM), 0o644); err != nil {
			return err
		}
		repository := filepath.Join(dir, "m2")
		err := run(ctx, dir, "mvn", "--batch-mode", "--quiet", "-Dmaven.repo.local="+repository,
			"org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies",
			"-DincludeScope=runtime", "-DoutputDirectory="+filepath.Join(dir, "libs"))
		if err != nil {
			return err
		}
		return os.RemoveAll(repository)
	})
	if err != nil {
		return "", fmt.Errorf("install Kafka %s (Maven's mvn is needed once, as in: apt-get install maven): %w", kafkaVersion, err)
	}
	if _, err := exec.LookPath(javaPath()); err != nil {
		return "", fmt.Errorf("run Kafka %s (Java 17 or newer is needed, as in: apt-get install default-jre-headless): %w",
			kafkaVersion, err)
	}
	return dir, nil
}
