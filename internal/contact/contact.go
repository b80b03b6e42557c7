// Package contact says what to do about a server that cannot be talked to: the
// errors of a network tell what happened, seldom which setting to look at.
package contact

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
)

// Server is how the configuration says where a server is and what it speaks.
type Server struct {
	Address   string // the key of its address, such as kafka.brokers
	TLS       string // the key of how it is encrypted, such as kafka.tls; "" if the address says that
	Encrypted bool   // as it is configured
	Speaks    string // what must answer at the address
}

// Error is an error of a first contact with its remedy.
type Error struct {
	Err    error
	Remedy string
}

func (e *Error) Error() string { return fmt.Sprintf("%v; %s", e.Err, e.Remedy) }
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether err has its remedy already.
func Is(err error) bool {
	_, ok := errors.AsType[*Error](err)
	return ok
}

// Explain adds to the error of a connection what to do about it. Nil, an error
// that has its remedy, and the end of a context that was cancelled stay what
// they are.
func (s Server) Explain(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || Is(err) {
		return err
	}
	return &Error{err, s.remedy(err)}
}

func (s Server) remedy(err error) string {
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Sprintf("is the name in %s right, and known to this machine?", s.Address)
	}
	if untrusted, ok := errors.AsType[*tls.CertificateVerificationError](err); ok && s.TLS != "" {
		return fmt.Sprintf("is %s.ca_file the authority of the certificate, and is it for the name in %s or %s.server_name? (%s)",
			s.TLS, s.Address, s.TLS, untrusted.UnverifiedCertificates[0].Subject)
	}
	failed, ok := errors.AsType[*net.OpError](err)
	switch {
	case ok && failed.Op == "dial" && failed.Timeout():
		return fmt.Sprintf("is the server up, does a firewall let this machine through, and is %s right?", s.Address)
	case ok && failed.Op == "dial":
		return fmt.Sprintf("is the server up, and is %s right?", s.Address)
	case s.TLS == "":
		return fmt.Sprintf("does %s name %s?", s.Address, s.Speaks)
	case ok && failed.Op == "remote error" && s.Encrypted: // an alert of TLS
		return fmt.Sprintf("does the server accept the certificate in %s.cert_file and key_file?", s.TLS)
	case s.Encrypted:
		return fmt.Sprintf("does %s name %s with TLS? Otherwise correct it, or set %s.enabled to false", s.Address, s.Speaks, s.TLS)
	}
	return fmt.Sprintf("does %s name %s without TLS? Otherwise correct it, or set %s.enabled to true", s.Address, s.Speaks, s.TLS)
}
