// Package kafka turns configuration into franz-go clients and answers the
// questions that are asked about topics and groups beside the consuming itself:
// how far a group lags, how a topic is laid out, what one record holds.
package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/chprojector/projector/internal/contact"
	"github.com/chprojector/projector/internal/credentials"
)

// DefaultDialTimeout bounds the connecting to one broker, TLS included.
const DefaultDialTimeout = 10 * time.Second

// keepAlive notices within about 25 seconds that a broker's machine is gone
// without having closed the connection. Go's default takes two and a half
// minutes, longer than a group's rebalance timeout.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}

// Config is what every client of one cluster has in common.
type Config struct {
	Brokers     []string      // host:port, at least one
	ClientID    string        // shown in the brokers' logs and quotas; "" = projector
	DialTimeout time.Duration // 0 = DefaultDialTimeout
	TLS         credentials.TLS
	SASL        SASL
}

// SASL is how a client proves who it is. Mechanism is "" (not at all), plain,
// scram-sha-256, scram-sha-512 or oauthbearer. Password and Token are read
// again at each handshake.
type SASL struct {
	Mechanism string
	Username  string             // plain and scram
	Password  credentials.Secret // plain and scram
	Token     credentials.Secret // oauthbearer
}

// Options are the franz-go options for every client of the cluster, to which
// each client adds its own. Files are read once here, so that a missing one is
// an error at the start and not a retry without end.
func (c Config) Options(log zerolog.Logger) ([]kgo.Opt, error) {
	if len(c.Brokers) == 0 {
		return nil, errors.New("kafka: no brokers: name at least one as host:port")
	}
	if _, err := c.TLS.Config(); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	mechanism, err := c.SASL.mechanism()
	if err != nil {
		return nil, fmt.Errorf("kafka: sasl: %w", err)
	}
	id := c.ClientID
	if id == "" {
		id = "projector"
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(id),
		kgo.Dialer(c.dial),
		kgo.WithLogger(newLogger(log)),
	}
	if mechanism != nil {
		opts = append(opts, kgo.SASL(mechanism))
	}
	return opts, nil
}

// dial reads the certificates for each connection. kgo's own DialTLSConfig was
// not used because it keeps those of the start until the process ends.
func (c Config) dial(ctx context.Context, network, address string) (net.Conn, error) {
	timeout := c.DialTimeout
	if timeout == 0 {
		timeout = DefaultDialTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	dialer := &net.Dialer{KeepAliveConfig: keepAlive}
	config, err := c.TLS.Config()
	if err != nil {
		return nil, err
	}
	var conn net.Conn
	if config == nil {
		conn, err = dialer.DialContext(ctx, network, address)
	} else if conn, err = (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, address); err != nil {
		err = fmt.Errorf("connect to %s by TLS: %w", address, err) // a failed handshake names no address
	}
	if err != nil {
		return nil, c.explain(address, err)
	}
	return conn, nil
}

// explain adds what to do about a broker that is not reached.
func (c Config) explain(address string, err error) error {
	if !slices.Contains(c.Brokers, address) && !contact.Is(err) && !errors.Is(err, context.Canceled) {
		return &contact.Error{Err: err, Remedy: "is this broker up? The cluster named its address: where this machine cannot reach it, correct the broker's advertised.listeners"}
	}
	return contact.Server{Address: "kafka.brokers", TLS: "kafka.tls", Encrypted: c.TLS.Enabled, Speaks: "a listener of Kafka"}.Explain(err)
}

func (s SASL) mechanism() (sasl.Mechanism, error) {
	switch s.Mechanism {
	case "":
		if s != (SASL{}) {
			return nil, errors.New("credentials are given without a mechanism: name one of plain, scram-sha-256, scram-sha-512, oauthbearer")
		}
		return nil, nil
	case "oauthbearer":
		if _, err := s.Token.Read(); err != nil {
			return nil, fmt.Errorf("token: %w", err)
		}
		return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			t, err := s.Token.Read()
			return oauth.Auth{Token: t}, err
		}), nil
	case "plain", "scram-sha-256", "scram-sha-512":
		if s.Username == "" {
			return nil, fmt.Errorf("mechanism %s needs a username", s.Mechanism)
		}
		if _, err := s.Password.Read(); err != nil {
			return nil, fmt.Errorf("password: %w", err)
		}
	default:
		return nil, fmt.Errorf("unknown mechanism %q: use plain, scram-sha-256, scram-sha-512 or oauthbearer", s.Mechanism)
	}
	if s.Mechanism == "plain" {
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			p, err := s.Password.Read()
			return plain.Auth{User: s.Username, Pass: p}, err
		}), nil
	}
	auth := func(context.Context) (scram.Auth, error) {
		p, err := s.Password.Read()
		return scram.Auth{User: s.Username, Pass: p}, err
	}
	if s.Mechanism == "scram-sha-256" {
		return scram.Sha256(auth), nil
	}
	return scram.Sha512(auth), nil
}
