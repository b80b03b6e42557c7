package config

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chprojector/projector/internal/clickhouse"
)

// margin is what must remain of the rebalance timeout after an insert that
// takes its whole time, for the letters and the commit that follow it. A member
// that is later is expelled, and what it inserted is consumed again.
const margin = Duration(10 * time.Second)

// check finds what is wrong with values that could be read.
func check(c *Config, r *report) {
	checkKafka(c, r)
	checkClickHouse(c, r)
	between(r, "batch.rows", c.Batch.Rows, 1, 10_000_000)
	between(r, "batch.bytes", c.Batch.Bytes, 64<<10, 1<<30)
	between(r, "batch.delay", c.Batch.Delay, Duration(10*time.Millisecond), Duration(10*time.Minute))
	between(r, "lanes", c.Lanes, 0, 1024)
	between(r, "drain_timeout", c.DrainTimeout, Duration(time.Second), Duration(time.Hour))
	if c.DrainTimeout <= c.ClickHouse.InsertTimeout {
		r.addFirst([]string{"drain_timeout", "clickhouse.insert_timeout"}, "%s leaves no time for an insert under way at SIGTERM, which may take clickhouse.insert_timeout (%s); make it longer, and terminationGracePeriodSeconds longer still",
			c.DrainTimeout, c.ClickHouse.InsertTimeout)
	}
	checkHTTP(c.HTTP, r)
	checkDeadLetter(c, r)
	checkProjections(c, r)
	checkSource(c, r)
	checkOutbox(c, r)
}

func checkKafka(c *Config, r *report) {
	k := c.Kafka
	r.addresses("kafka.brokers", k.Brokers, "localhost:9092")
	r.present("kafka.group", k.Group, "the prefix of the consumer groups, such as projector")
	r.oneOf("kafka.start", k.Start, "earliest", "latest")
	r.present("kafka.client_id", k.ClientID, "the name that brokers log, such as projector")
	between(r, "kafka.session_timeout", k.SessionTimeout, Duration(time.Second), Duration(time.Hour))
	between(r, "kafka.rebalance_timeout", k.RebalanceTimeout, Duration(time.Second), Duration(time.Hour))
	if need := c.ClickHouse.InsertTimeout + margin; k.RebalanceTimeout < need {
		r.addFirst([]string{"kafka.rebalance_timeout", "clickhouse.insert_timeout"}, "%s is too short: an insert may take clickhouse.insert_timeout (%s), and %s more are needed for dead letters and the commit; raise it to %s or shorten insert_timeout",
			k.RebalanceTimeout, c.ClickHouse.InsertTimeout, margin, need)
	}
	checkTLS("kafka.tls", k.TLS, r)
	checkSASL(k.SASL, r)
}

func checkTLS(path string, t TLS, r *report) {
	files := []struct{ key, value string }{
		{"ca_file", t.CAFile}, {"cert_file", t.CertFile}, {"key_file", t.KeyFile}, {"server_name", t.ServerName},
	}
	for _, f := range files {
		if f.value != "" && !t.Enabled && r.readable(path+".enabled") {
			r.add(path+"."+f.key, "given, but %s.enabled is false; set it to true or remove this key", path)
		}
	}
	if t.Enabled && t.CertFile != "" && t.KeyFile == "" {
		r.add(path+".cert_file", "given without key_file; a client certificate needs both")
	}
	if t.Enabled && t.KeyFile != "" && t.CertFile == "" {
		r.add(path+".key_file", "given without cert_file; a client certificate needs both")
	}
}

func checkSASL(s SASL, r *report) {
	const path = "kafka.sasl"
	r.twins(path+".password", s.Password, s.PasswordFile)
	r.twins(path+".token", s.Token, s.TokenFile)
	user := s.Username != ""
	password := s.Password != "" || s.PasswordFile != ""
	token := s.Token != "" || s.TokenFile != ""
	switch s.Mechanism {
	case "":
		if (user || password || token) && r.readable(path+".mechanism") {
			r.add(path+".mechanism", "is empty, but credentials are given; name one of plain, scram-sha-256, scram-sha-512, oauthbearer, or remove them")
		}
	case "plain", "scram-sha-256", "scram-sha-512":
		if !user && r.readable(path+".username") {
			r.add(path+".username", "missing; mechanism %s needs a username and a password", s.Mechanism)
		}
		if !password && r.readable(path+".password") {
			r.add(path+".password_file", "missing; mechanism %s needs a password: name the file that holds it", s.Mechanism)
		}
		if token {
			r.add(path+".token", "given, but mechanism %s uses a password; remove it", s.Mechanism)
		}
	case "oauthbearer":
		if !token && r.readable(path+".token") {
			r.add(path+".token_file", "missing; mechanism oauthbearer needs a token: name the file that holds it")
		}
		if user || password {
			r.add(path+".username", "credentials are given, but mechanism oauthbearer uses a token; remove username and password")
		}
	default:
		r.oneOf(path+".mechanism", s.Mechanism, "plain", "scram-sha-256", "scram-sha-512", "oauthbearer")
	}
}

var clusterName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)

func checkClickHouse(c *Config, r *report) {
	ch := c.ClickHouse
	r.addresses("clickhouse.addresses", ch.Addresses, "localhost:9000")
	r.present("clickhouse.database", ch.Database, "the database of the tables")
	r.present("clickhouse.username", ch.Username, "the user who writes")
	r.twins("clickhouse.password", ch.Password, ch.PasswordFile)
	between(r, "clickhouse.insert_timeout", ch.InsertTimeout, Duration(time.Second), Duration(time.Hour))
	between(r, "clickhouse.dial_timeout", ch.DialTimeout, Duration(100*time.Millisecond), Duration(time.Minute))
	r.oneOf("clickhouse.compression", ch.Compression, "none", "lz4", "zstd")
	if ch.Cluster != "" && !clusterName.MatchString(ch.Cluster) {
		r.add("clickhouse.cluster", "%q is not the name of a cluster; use a name of system.clusters", cut(ch.Cluster))
	}
	checkTLS("clickhouse.tls", ch.TLS, r)
	for name := range ch.Settings {
		if why, ok := clickhouse.Pinned(name); ok {
			r.add("clickhouse.settings."+name, "must not be set: %s; remove it", why)
		}
	}
	for code, class := range ch.ErrorClasses {
		path := "clickhouse.error_classes." + code
		if n, err := strconv.Atoi(code); err != nil || n <= 0 {
			r.add(path, "%q is not an error code of ClickHouse; write its number, such as 252", code)
		}
		r.oneOf(path, class, "unknown", "transient", "rejected", "split", "refresh", "fatal")
	}
}

var topicPart = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)

func checkDeadLetter(c *Config, r *report) {
	d := c.DeadLetter
	if !topicPart.MatchString(d.Suffix) && r.readable("dead_letter.suffix") {
		r.add("dead_letter.suffix", "%q cannot end a topic's name; use letters, digits, '.', '_' and '-', such as -dlq", cut(d.Suffix))
	}
	if r.readable("dead_letter.stop_ratio") && (d.StopRatio < 0 || d.StopRatio > 1) {
		r.add("dead_letter.stop_ratio", "%g is not a share; use 0 to 1 (0 = never stop)", d.StopRatio)
	}
	between(r, "dead_letter.stop_run", d.StopRun, 0, 1_000_000_000)
}

func (r *report) present(path, value, what string) {
	if value == "" && r.readable(path) {
		r.add(path, "missing; give %s", what)
	}
}

func (r *report) oneOf(path, value string, allowed ...string) {
	if !slices.Contains(allowed, value) && r.readable(path) {
		r.add(path, "%q is not known; use %s", cut(value), strings.Join(allowed, ", "))
	}
}

// twins refuses a secret that is given in two ways.
func (r *report) twins(path string, value Secret, file string) {
	if value != "" && file != "" {
		r.add(path+"_file", "given together with %s; keep one of the two", path[strings.LastIndexByte(path, '.')+1:])
	}
}

func (r *report) addresses(path string, list []string, example string) {
	if len(list) == 0 && r.readable(path) {
		r.add(path, "missing; give at least one host:port, such as [%s]", example)
	}
	for i, a := range list {
		sub := fmt.Sprintf("%s[%d]", path, i)
		if host, _, err := net.SplitHostPort(a); err == nil && host == "" && !strings.Contains(a, "@") && r.readable(sub) {
			r.add(sub, "%q has no host; write for example %s", cut(a), example)
			continue
		}
		r.hostPort(sub, a, example)
	}
}

func (r *report) hostPort(path, address, example string) {
	if !r.readable(path) {
		return
	}
	if i := strings.LastIndexByte(address, '@'); i >= 0 { // what stands before it is a password, as a rule
		r.add(path, "%q is not host:port (what stands before the @ is not shown: users and passwords have keys of their own); write for example %s", cut(address[i:]), example)
		return
	}
	_, port, err := net.SplitHostPort(address)
	if n, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || n > 65535 {
		r.add(path, "%q is not host:port; write for example %s", cut(address), example)
	}
}

// between reports a value outside of its bounds, both inclusive.
func between[T interface{ ~int | ~int64 }](r *report, path string, value, low, high T) {
	if (value < low || value > high) && r.readable(path) {
		r.add(path, "%v is out of range; use %v to %v", value, low, high)
	}
}
