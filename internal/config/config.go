package config

import "time"

// Config is the whole configuration after defaults, file, environment and
// flags. Field order is the order in which it is printed. docs/configuration.md
// describes every key; a test holds the two together.
type Config struct {
	Kafka        Kafka        `koanf:"kafka"`
	ClickHouse   ClickHouse   `koanf:"clickhouse"`
	Batch        Batch        `koanf:"batch"`
	Lanes        int          `koanf:"lanes"`         // 0 = one per CPU
	DrainTimeout Duration     `koanf:"drain_timeout"` // from SIGTERM to the end of the process
	HTTP         HTTP         `koanf:"http"`
	DeadLetter   DeadLetter   `koanf:"dead_letter"`
	Projections  []Projection `koanf:"projections"`
	Source       Source       `koanf:"source"`
	Outbox       Outbox       `koanf:"outbox"`

	places places // where each key was written, for errors found after loading
}

// Kafka is the cluster that holds the events and the dead letters.
type Kafka struct {
	Brokers          []string `koanf:"brokers"`
	Group            string   `koanf:"group"` // prefix: <group>.<projection>.g<generation>
	Start            string   `koanf:"start"` // earliest | latest, for a group without commits
	ClientID         string   `koanf:"client_id"`
	SessionTimeout   Duration `koanf:"session_timeout"`
	RebalanceTimeout Duration `koanf:"rebalance_timeout"`
	TLS              TLS      `koanf:"tls"`
	SASL             SASL     `koanf:"sasl"`
}

// TLS is one client's side of an encrypted connection.
type TLS struct {
	Enabled    bool   `koanf:"enabled"`
	CAFile     string `koanf:"ca_file"`
	CertFile   string `koanf:"cert_file"`
	KeyFile    string `koanf:"key_file"`
	ServerName string `koanf:"server_name"`
}

// SASL is how the Kafka client proves who it is.
type SASL struct {
	Mechanism    string `koanf:"mechanism"`
	Username     string `koanf:"username"`
	Password     Secret `koanf:"password"`
	PasswordFile string `koanf:"password_file"`
	Token        Secret `koanf:"token"` // oauthbearer
	TokenFile    string `koanf:"token_file"`
}

// ClickHouse is the server, or the replicas of one shard, that hold the tables.
type ClickHouse struct {
	Addresses     []string          `koanf:"addresses"`
	Database      string            `koanf:"database"`
	Username      string            `koanf:"username"`
	Password      Secret            `koanf:"password"`
	PasswordFile  string            `koanf:"password_file"`
	InsertTimeout Duration          `koanf:"insert_timeout"`
	DialTimeout   Duration          `koanf:"dial_timeout"`
	Compression   string            `koanf:"compression"`
	Cluster       string            `koanf:"cluster"` // ON CLUSTER of the DDL; "" = one server
	TLS           TLS               `koanf:"tls"`
	Settings      map[string]string `koanf:"settings"`      // further settings of every session
	ErrorClasses  map[string]string `koanf:"error_classes"` // error code -> class
}

// Batch bounds a cut: it is sealed by whichever limit it reaches first.
type Batch struct {
	Rows  int      `koanf:"rows"`
	Bytes Size     `koanf:"bytes"`
	Delay Duration `koanf:"delay"`
}

// HTTP is the server for metrics, probes and the status page.
type HTTP struct {
	Address   string    `koanf:"address"`
	Token     Secret    `koanf:"token"` // demanded of everybody but the probes; "" = of nobody
	TokenFile string    `koanf:"token_file"`
	TLS       ServerTLS `koanf:"tls"`
	Pprof     bool      `koanf:"pprof"`
}

// ServerTLS is a server's side of an encrypted connection.
type ServerTLS struct {
	Enabled      bool   `koanf:"enabled"`
	CertFile     string `koanf:"cert_file"`
	KeyFile      string `koanf:"key_file"`
	ClientCAFile string `koanf:"client_ca_file"`
}

// DeadLetter says where refused events go and when refusals are no longer
// taken for bad data but for a bad deployment.
type DeadLetter struct {
	Suffix    string  `koanf:"suffix"`
	StopRatio float64 `koanf:"stop_ratio"`
	StopRun   int     `koanf:"stop_run"`
}

// Projection is one table and what fills it.
type Projection struct {
	Name          string            `koanf:"name"`
	Topics        []string          `koanf:"topics"`
	Table         string            `koanf:"table"`
	Generation    uint32            `koanf:"generation"`
	Identity      []string          `koanf:"identity"`
	OrderBy       []string          `koanf:"order_by"`
	PartitionBy   string            `koanf:"partition_by"`
	Version       string            `koanf:"version"`
	Deleted       string            `koanf:"deleted"`
	Campaign      string            `koanf:"campaign"`
	SchemaVersion SchemaVersion     `koanf:"schema_version"`
	NullValue     string            `koanf:"null_value"`
	Strict        bool              `koanf:"strict"`
	TableSettings map[string]string `koanf:"table_settings"`
	Columns       []Column          `koanf:"columns"`
	Views         []View            `koanf:"views"`
}

// SchemaVersion names the field that tells which schema an event follows.
type SchemaVersion struct {
	From   string  `koanf:"from"`
	Accept []int64 `koanf:"accept"`
}

// Column is one column and where its value comes from.
type Column struct {
	Name    string `koanf:"name"`
	From    string `koanf:"from"`
	Type    string `koanf:"type"`
	Default JSON   `koanf:"default"`
	Zone    string `koanf:"zone"`
	Unit    string `koanf:"unit"`
	Round   string `koanf:"round"`
}

// View is a further report view; {current} in Query is the current-state view.
type View struct {
	Name  string `koanf:"name"`
	Query string `koanf:"query"`
}

// Source is the authoritative MySQL, one entry for each shard. It is optional.
type Source struct {
	Shards      []Shard                     `koanf:"shards"`
	Projections map[string]SourceProjection `koanf:"projections"`
}

// Shard is one MySQL server of the source.
type Shard struct {
	Name    string `koanf:"name"`
	DSN     Secret `koanf:"dsn"`
	DSNFile string `koanf:"dsn_file"`
}

// SourceProjection is where one projection's authoritative rows come from and
// what equality means for them.
type SourceProjection struct {
	Rows      string  `koanf:"rows"`
	Deletions string  `koanf:"deletions"`
	Campaigns string  `koanf:"campaigns"`
	Fields    []Field `koanf:"fields"`
}

// Field is one entry of the comparison's own contract, independent of the
// mapping so that a defect of the mapping cannot hide itself.
type Field struct {
	Column    string `koanf:"column"`
	Source    string `koanf:"source"`
	Class     string `koanf:"class"`
	Scale     int    `koanf:"scale"`
	Precision int    `koanf:"precision"`
	Zone      string `koanf:"zone"`
	Deletion  string `koanf:"deletion"` // source, in the deletions query; "" = the same
	Event     string `koanf:"event"`    // path in an event; "" = the name that rows gives to source
	Unit      string `koanf:"unit"`     // of an instant that an event holds as a number
	Default   JSON   `koanf:"default"`  // what a missing field of an event stands for
}

// JSON is a value of any type, as JSON text; nil where the key is absent.
type JSON []byte

// Default is what holds for every key that is written nowhere.
func Default() Config {
	return Config{
		Kafka: Kafka{
			Group:            "projector",
			Start:            "earliest",
			ClientID:         "projector",
			SessionTimeout:   Duration(45 * time.Second),
			RebalanceTimeout: Duration(60 * time.Second),
		},
		ClickHouse: ClickHouse{
			Database:      "default",
			Username:      "default",
			InsertTimeout: Duration(20 * time.Second),
			DialTimeout:   Duration(5 * time.Second),
			Compression:   "none",
		},
		Batch:        Batch{Rows: 100_000, Bytes: 32 << 20, Delay: Duration(time.Second)},
		DrainTimeout: Duration(25 * time.Second),
		HTTP:         HTTP{Address: "127.0.0.1:8080"},
		DeadLetter:   DeadLetter{Suffix: "-dlq", StopRatio: 0.5, StopRun: 1000},
		Outbox:       defaultOutbox,
	}
}

// setDefaults fills what a list's element starts from before it is decoded.
func (p *Projection) setDefaults() {
	p.Generation = 1
	p.NullValue = "dead_letter"
}
