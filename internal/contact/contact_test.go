package contact_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/chprojector/projector/internal/contact"
)

func TestExplain(t *testing.T) {
	plain := contact.Server{Address: "kafka.brokers", TLS: "kafka.tls", Speaks: "a listener of Kafka"}
	encrypted := plain
	encrypted.Encrypted = true
	dsn := contact.Server{Address: "dsn", Speaks: "a MySQL server"}
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for name, c := range map[string]struct {
		server contact.Server
		err    error
		want   string
	}{
		"nobody listens":        {plain, dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), "is the server up, and is kafka.brokers right?"},
		"nobody answers":        {plain, dial(os.ErrDeadlineExceeded), "is the server up, does a firewall let this machine through, and is kafka.brokers right?"},
		"no such name":          {plain, dial(&net.DNSError{Err: "no such host", Name: "kafka", IsNotFound: true}), "is the name in kafka.brokers right, and known to this machine?"},
		"another protocol":      {plain, io.EOF, "does kafka.brokers name a listener of Kafka without TLS? Otherwise correct it, or set kafka.tls.enabled to true"},
		"no TLS":                {encrypted, io.EOF, "does kafka.brokers name a listener of Kafka with TLS? Otherwise correct it, or set kafka.tls.enabled to false"},
		"a refused certificate": {encrypted, &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, "does the server accept the certificate in kafka.tls.cert_file and key_file?"},
		"TLS in the address":    {dsn, io.EOF, "does dsn name a MySQL server?"},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.server.Explain(fmt.Errorf("connect: %w", c.err))
			if want := "connect: " + c.err.Error() + "; " + c.want; got.Error() != want || !errors.Is(got, c.err) {
				t.Errorf("got  %v\nwant %s", got, want)
			}
			if again := c.server.Explain(fmt.Errorf("ask: %w", got)); strings.Count(again.Error(), c.want) != 1 {
				t.Errorf("explained twice: %v", again)
			}
		})
	}
	if err := plain.Explain(nil); err != nil {
		t.Errorf("no error: %v", err)
	}
	if err := plain.Explain(context.Canceled); err != context.Canceled {
		t.Errorf("the end of the question: %v", err)
	}
}
