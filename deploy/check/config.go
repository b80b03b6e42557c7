package check

import (
	"fmt"
	"time"

	"sigs.k8s.io/yaml"
)

// Config is the part of the program's effective configuration that the rules ask about.
type Config struct {
	Kafka struct {
		Brokers []string
		Group   string
		Start   string
	}
	ClickHouse struct {
		Addresses     []string
		InsertTimeout Duration `json:"insert_timeout"`
	}
	Batch        struct{ Rows int }
	Lanes        int
	DrainTimeout Duration `json:"drain_timeout"`
	HTTP         struct {
		Address   string
		TokenFile string `json:"token_file"`
		TLS       struct{ Enabled bool }
	}
	Projections []struct {
		Name       string
		Topics     []string
		Generation int
	}
	Source struct{ Shards []Shard }
}

// Shard is one MySQL server.
type Shard struct {
	Name    string
	DSNFile string `json:"dsn_file"`
}

// Duration is one with its unit.
type Duration time.Duration

// UnmarshalText reads "25s".
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// ReadConfig reads what `projector config print` prints.
func ReadConfig(printed []byte) (*Config, error) {
	c := new(Config)
	if err := yaml.Unmarshal(printed, c); err != nil {
		return nil, fmt.Errorf("read the effective configuration: %w", err)
	}
	return c, nil
}

// Groups are the consumer groups and the topics that each reads.
func (c *Config) Groups() map[string][]string {
	groups := map[string][]string{}
	for _, p := range c.Projections {
		groups[fmt.Sprintf("%s.%s.g%d", c.Kafka.Group, p.Name, p.Generation)] = p.Topics
	}
	return groups
}
