package config

import (
	"fmt"

	"github.com/chprojector/projector/internal/credentials"
)

// CheckFiles reads every secret and certificate with which Kafka and ClickHouse
// are reached and reports all that cannot be read. Load does not, so that a
// configuration can be checked and a schema printed on a machine that has no
// secrets.
func (c *Config) CheckFiles() error {
	r := &report{places: c.places}
	c.checkKafkaFiles(r)
	c.checkClickHouseFiles(r)
	return r.err()
}

// CheckClickHouse is CheckFiles for the commands that never reach Kafka: a Job
// that applies the schema has none of its secrets.
func (c *Config) CheckClickHouse() error {
	r := &report{places: c.places}
	c.checkClickHouseFiles(r)
	return r.err()
}

// CheckRun is CheckFiles with what a process that serves http.address reads.
func (c *Config) CheckRun() error {
	r := &report{places: c.places}
	c.checkKafkaFiles(r)
	c.checkClickHouseFiles(r)
	c.checkServer(r)
	return r.err()
}

// CheckSource reads the addresses of the shards, for the commands that read the
// source. Nobody else needs them.
func (c *Config) CheckSource() error {
	r := &report{places: c.places}
	c.checkShards(r)
	return r.err()
}

func (c *Config) checkShards(r *report) {
	for i, s := range c.Source.Shards {
		r.secret(fmt.Sprintf("source.shards[%d].dsn_file", i), s.dsn())
	}
}

func (c *Config) checkServer(r *report) {
	server := c.Server()
	r.secret("http.token_file", server.Token)
	if _, err := server.TLS.Config(); err != nil {
		r.add("http.tls", "%v", err)
	}
}

func (c *Config) checkKafkaFiles(r *report) {
	r.secret("kafka.sasl.password_file", c.Kafka.SASL.password())
	r.secret("kafka.sasl.token_file", c.Kafka.SASL.token())
	r.certificates("kafka.tls", c.Kafka.TLS)
}

func (c *Config) checkClickHouseFiles(r *report) {
	r.secret("clickhouse.password_file", c.ClickHouse.password())
	r.certificates("clickhouse.tls", c.ClickHouse.TLS)
}

func (r *report) secret(key string, s credentials.Secret) {
	if _, err := s.Read(); err != nil {
		r.add(key, "%v", err)
	}
}

func (r *report) certificates(key string, t TLS) {
	if _, err := t.client().Config(); err != nil {
		r.add(key, "%v", err)
	}
}

func (s SASL) password() credentials.Secret { return twin(s.Password, s.PasswordFile) }
func (s SASL) token() credentials.Secret    { return twin(s.Token, s.TokenFile) }

func (s Shard) dsn() credentials.Secret { return twin(s.DSN, s.DSNFile) }

func (c ClickHouse) password() credentials.Secret { return twin(c.Password, c.PasswordFile) }

func twin(value Secret, file string) credentials.Secret {
	return credentials.Secret{Value: value.Reveal(), File: file}
}

func (t TLS) client() credentials.TLS {
	return credentials.TLS{Enabled: t.Enabled, CAFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile, ServerName: t.ServerName}
}
