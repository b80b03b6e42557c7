// Package clickhouse is everything that talks to ClickHouse for rows: the
// control connection for statements and questions, and the inserter that sends
// one block over a connection of its own.
//
// Two drivers serve it. clickhouse-go is convenient and pools connections; it
// carries statements. ch-go gives access to the block as it goes over the
// wire; it carries the rows, which mapping already holds in that form.
// docs/decisions/native-block.md has the measurement behind it.
package clickhouse

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/ClickHouse/ch-go"

	"github.com/chprojector/projector/internal/credentials"
)

// Defaults of Config.
const (
	DefaultDialTimeout   = 5 * time.Second
	DefaultInsertTimeout = 20 * time.Second
	DefaultCompression   = "none"
)

// Config is one server, or the replicas of one shard.
type Config struct {
	Addresses []string // host:port of the native protocol, at least one
	Database  string   // "" = the user's default
	Username  string   // "" = default
	Password  credentials.Secret
	TLS       credentials.TLS

	DialTimeout   time.Duration // connecting, TLS and the server's greeting; 0 = DefaultDialTimeout
	InsertTimeout time.Duration // one attempt of an insert, connecting included; 0 = DefaultInsertTimeout
	Compression   string        // of inserted blocks: none, lz4 or zstd; "" = DefaultCompression

	// Settings are sent with every statement and insert. A name that the server
	// does not know is an error there, not ignored. Those in fixed cannot be set.
	Settings map[string]string
	// Classes moves error codes to other classes.
	Classes Classes
}

// usual are settings of every insert that Settings may change.
//
// A block makes one part for each partition that it touches, however it is
// divided beforehand. So dividing it at the server's own limit of 100 protects
// nothing here, and the limit is raised; docs/decisions/partitions.md.
//
// A block that the table recognises as a repeated one goes on to the
// materialized views, which may have missed it; with deduplication they, too,
// recognise what they have, if their tables keep a window. It is the default
// of 26.7 and not of older servers.
var usual = map[string]string{
	"max_partitions_per_insert_block":                    "500",
	"deduplicate_blocks_in_dependent_materialized_views": "1",
}

// withDefaults is c with every optional field filled in, or all that is wrong
// with it.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	if len(c.Addresses) == 0 {
		errs = append(errs, errors.New("no addresses: name at least one as host:port"))
	}
	for _, a := range c.Addresses {
		if _, _, err := net.SplitHostPort(a); err != nil {
			errs = append(errs, fmt.Errorf("address %q: %w: use host:port with the port of the native protocol, usually 9000 or 9440", a, err))
		}
	}
	if c.DialTimeout < 0 || c.InsertTimeout < 0 {
		errs = append(errs, fmt.Errorf("timeouts must be positive: dial %s, insert %s", c.DialTimeout, c.InsertTimeout))
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = DefaultDialTimeout
	}
	if c.InsertTimeout == 0 {
		c.InsertTimeout = DefaultInsertTimeout
	}
	if c.Compression == "" {
		c.Compression = DefaultCompression
	}
	if _, ok := compressions[c.Compression]; !ok {
		errs = append(errs, fmt.Errorf("compression %q: use one of none, lz4, zstd", c.Compression))
	}
	if c.Username == "" {
		c.Username = "default"
	}
	for _, name := range slices.Sorted(maps.Keys(c.Settings)) {
		if why, ok := Pinned(name); ok {
			errs = append(errs, fmt.Errorf("setting %s cannot be changed: %s", name, why))
		}
	}
	if _, err := c.Password.Read(); err != nil {
		errs = append(errs, fmt.Errorf("password: %w", err))
	}
	if _, err := c.TLS.Config(); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return c, fmt.Errorf("clickhouse: %w", err)
	}
	return c, nil
}

var compressions = map[string]ch.Compression{
	"none": ch.CompressionDisabled,
	"lz4":  ch.CompressionLZ4,
	"zstd": ch.CompressionZSTD,
}

// settings are the settings of one insert, and with further ones of a question.
// All are sent as important: an unknown name makes the server answer with an
// error.
func (c *Config) settings(token string, further map[string]string) []ch.Setting {
	all := make([]ch.Setting, 0, len(fixed)+len(usual)+len(c.Settings)+len(further)+1)
	merged := maps.Clone(usual)
	maps.Copy(merged, c.Settings)
	maps.Copy(merged, fixed)
	maps.Copy(merged, further)
	for _, name := range slices.Sorted(maps.Keys(merged)) {
		all = append(all, ch.Setting{Key: name, Value: merged[name], Important: true})
	}
	if token != "" {
		all = append(all, ch.Setting{Key: dedupToken, Value: token, Important: true})
	}
	return all
}
