package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"

	"github.com/chprojector/projector/chschema"
	"github.com/chprojector/projector/mapping"
	"github.com/chprojector/projector/projector"
)

var _ projector.Inserter = (*Inserter)(nil)

// Inserter sends blocks of rows to one table over one connection, which it
// opens when it is first needed and again after every error. It belongs to one
// goroutine.
type Inserter struct {
	config Config
	table  string // as error messages name it
	into   string // quoted
	next   int    // index of the address to dial next

	client *ch.Client // nil: not connected
	conn   *bounded
	buffer proto.Buffer // of the block; outlives connections
}

// NewInserter makes an inserter for a physical table of the configured
// database. Nothing is connected. Inserters begin with a random one of the
// addresses, so that lanes spread over the replicas.
func NewInserter(c Config, table string) (*Inserter, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	into := chschema.QuoteName(table)
	if c.Database != "" {
		into = chschema.QuoteName(c.Database) + "." + into
	}
	return &Inserter{config: c, table: table, into: into, next: rand.IntN(len(c.Addresses))}, nil
}

// Insert writes rows [b.From, b.To) as one block and returns when the server
// has answered. After an error none, some or all of the rows may be in the
// table: insert the same rows again.
//
// An attempt ends with ctx and at the latest after the insert timeout. Every
// error is a *projector.InsertError below the text that names the table, and
// closes the connection; the next attempt dials the next address.
func (in *Inserter) Insert(ctx context.Context, b projector.Batch) error {
	if b.From == b.To {
		return nil
	}
	return in.attempt(ctx, func(ctx context.Context) error { return in.send(ctx, b) })
}

// Check runs an insert-like session and reads back what the inserts rest on.
// It fails when the server, or the user's profile, does not let the client
// switch asynchronous inserts off.
func (in *Inserter) Check(ctx context.Context) error {
	for name, want := range fixed {
		var got string
		err := in.attempt(ctx, func(ctx context.Context) (err error) {
			got, err = in.setting(ctx, name)
			return err
		})
		if err != nil {
			return fmt.Errorf("check setting %s: %w", name, err)
		}
		if got != want {
			return fmt.Errorf("check setting %s: %w", name, &projector.InsertError{Class: projector.Fatal, Message: fmt.Sprintf(
				"it is %s although the session sets %s: remove it from the profile and the constraints of user %s", got, want, in.config.Username)})
		}
	}
	return nil
}

// Close closes the connection, if there is one.
func (in *Inserter) Close() error {
	in.disconnect()
	return nil
}

// attempt does one thing on a connection within the time of one attempt, and
// leaves no connection behind after an error.
func (in *Inserter) attempt(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, in.config.InsertTimeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	err := in.connect(ctx)
	if err == nil {
		in.conn.until(deadline)
		stop := context.AfterFunc(ctx, in.conn.expire)
		err = do(ctx)
		stop()
	}
	if err == nil {
		return nil
	}
	address := in.address()
	in.disconnect()
	in.next++
	failed := in.config.Classes.insertError(err)
	if failed.Code == 0 && ctx.Err() != nil {
		// What the drivers make of a deadline differs from place to place.
		failed.Class, failed.Err = projector.Transient, fmt.Errorf("no answer: %w", context.Cause(ctx))
	}
	return fmt.Errorf("%s on %s: %w", in.table, address, failed)
}

func (in *Inserter) address() string { return in.config.Addresses[in.next%len(in.config.Addresses)] }

func (in *Inserter) connect(ctx context.Context) error {
	if in.client != nil {
		return nil
	}
	password, err := in.config.Password.Read()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, in.config.DialTimeout)
	defer cancel()
	conn, raw, err := dial(ctx, in.address(), in.config.TLS)
	if err != nil {
		return in.config.explain(err)
	}
	in.conn = &bounded{Conn: conn, raw: raw}
	greeted, _ := ctx.Deadline()
	in.conn.until(greeted)
	in.buffer.Reset()
	in.client, err = ch.ConnectWithBuffer(ctx, in.conn, ch.Options{
		Database:    in.config.Database,
		User:        in.config.Username,
		Password:    password,
		ClientName:  clientName,
		Compression: compressions[in.config.Compression],
		ReadTimeout: ch.NoTimeout, // the limit of conn holds
	}, &in.buffer)
	if err != nil {
		in.client = nil
		raw.Close()
		if _, refused := errors.AsType[*ch.Exception](err); !refused {
			err = in.config.explain(err)
		}
		return fmt.Errorf("connect: %w", err)
	}
	return nil
}

func (in *Inserter) disconnect() {
	if in.client != nil {
		_ = in.client.Close()
		in.client, in.conn = nil, nil
	}
}

func (in *Inserter) send(ctx context.Context, b projector.Batch) error {
	block := &block{from: b.From, to: b.To, conn: in.conn}
	input := block.input(b.Rows)
	err := in.client.Do(ctx, ch.Query{
		Body:     in.statement(b.Rows),
		Input:    input,
		Settings: in.config.settings(b.Token, nil),
	})
	// A column that differs is the reason for whatever ch-go reports.
	switch {
	case block.refused != nil:
		return block.refused
	case err == nil:
		return in.conn.written()
	}
	failed := in.config.Classes.insertError(err)
	if failed.Class == projector.Rejected && !block.accepted {
		// No row has been looked at: it is the statement or a setting.
		failed.Class = projector.Fatal
	}
	return failed
}

func (in *Inserter) setting(ctx context.Context, name string) (string, error) {
	var value proto.ColStr
	err := in.client.Do(ctx, ch.Query{
		Body:     "SELECT toString(getSetting('" + name + "')) AS value",
		Result:   proto.Results{{Name: "value", Data: &value}},
		Settings: in.config.settings("", whole),
	})
	if err != nil {
		return "", err
	}
	if value.Rows() != 1 {
		return "", fmt.Errorf("the server gave %d values", value.Rows())
	}
	switch got := value.First(); got {
	case "false":
		return "0", nil
	case "true":
		return "1", nil
	default:
		return got, nil
	}
}

// statement names the columns, so that the table may have more of them and in
// any order.
func (in *Inserter) statement(rows *mapping.Rows) string {
	names := make([]string, 0, 32)
	for _, c := range rows.Columns() {
		names = append(names, chschema.QuoteName(c.Name()))
	}
	return "INSERT INTO " + in.into + " (" + strings.Join(names, ", ") + ") VALUES"
}
