package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// endpoints say how to reach the servers. They are what -o json prints, and what the file of a stack in the background
// holds.
type endpoints struct {
	PID        int                 `json:"pid"` // of devstack
	Kafka      *kafkaEndpoint      `json:"kafka,omitempty"`
	ClickHouse *clickHouseEndpoint `json:"clickhouse,omitempty"`
	MariaDB    *mariaDBEndpoint    `json:"mariadb,omitempty"`
}

type kafkaEndpoint struct {
	Brokers []string `json:"brokers"`
	PID     int      `json:"pid,omitempty"` // 0: the fake inside devstack
}

type clickHouseEndpoint struct {
	Address  string `json:"address"` // native protocol
	HTTP     string `json:"http"`
	Database string `json:"database"`
	PID      int    `json:"pid"`
}

type mariaDBEndpoint struct {
	Address string `json:"address"`
	DSN     string `json:"dsn"` // of go-sql-driver/mysql
	PID     int    `json:"pid"`
}

// print writes e as the lines that a shell evaluates, or as one line of JSON. Only what projector's configuration knows
// may be called PROJECTOR_…: it refuses an unknown key.
func (e *endpoints) print(w io.Writer, format string) error {
	if format == "json" {
		return json.NewEncoder(w).Encode(e)
	}
	var text strings.Builder
	export := func(name, value string) {
		fmt.Fprintf(&text, "export %s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`))
	}
	if e.Kafka != nil {
		export("PROJECTOR_KAFKA__BROKERS", strings.Join(e.Kafka.Brokers, ","))
	}
	if e.ClickHouse != nil {
		export("PROJECTOR_CLICKHOUSE__ADDRESSES", e.ClickHouse.Address)
		export("PROJECTOR_CLICKHOUSE__DATABASE", e.ClickHouse.Database)
		export("DEVSTACK_CLICKHOUSE_HTTP", e.ClickHouse.HTTP)
	}
	if e.MariaDB != nil {
		export("DEVSTACK_MYSQL_DSN", e.MariaDB.DSN)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// hint says how to publish what an application writes into MariaDB's outbox, by the repository's config.yaml, in a shell
// that has evaluated the addresses. A list such as the shards cannot be set by a variable, so the configuration is edited
// on its way; the port is not that of `projector run`.
func (e *endpoints) hint(w io.Writer) error {
	if e.MariaDB == nil || e.Kafka == nil {
		return nil
	}
	_, err := fmt.Fprintf(w, `devstack: MariaDB has the table %s; to publish what is written there:
  sed "s|dsn_file: /run/secrets/s0|dsn: '%s'|" config.yaml | projector --config /dev/stdin --set http.address=localhost:8081 relay
`, outboxTable, e.MariaDB.DSN)
	return err
}
