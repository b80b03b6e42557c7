package credentials

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLS is a client's side of an encrypted connection. The zero value is a plain
// connection. Without CAFile the system's roots are trusted; without CertFile
// the client shows no certificate; without ServerName the certificate must be
// for the host that is dialled.
type TLS struct {
	Enabled    bool
	CAFile     string
	CertFile   string
	KeyFile    string
	ServerName string
}

// Config reads the files and is nil when TLS is not enabled. There is no way
// to switch the verification off: a private authority belongs into CAFile.
func (t TLS) Config() (*tls.Config, error) {
	if !t.Enabled {
		if t != (TLS{}) {
			return nil, errors.New("tls: files or a server name are given, but enabled is false: set enabled to true or remove them")
		}
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		var err error
		if c.RootCAs, err = pool("ca_file", t.CAFile); err != nil {
			return nil, err
		}
	}
	if t.CertFile != "" || t.KeyFile != "" {
		if t.CertFile == "" || t.KeyFile == "" {
			return nil, errors.New("tls: cert_file and key_file need each other: give both or none")
		}
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("tls: read cert_file and key_file: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// ServerTLS is a server's side of encrypted connections. The zero value serves
// plain ones. With ClientCAFile a certificate that a client shows must be of one
// of its authorities; whether one must be shown is decided for each request.
type ServerTLS struct {
	Enabled      bool
	CertFile     string
	KeyFile      string
	ClientCAFile string
}

// Config reads the files and is nil when TLS is not enabled.
func (t ServerTLS) Config() (*tls.Config, error) {
	if !t.Enabled {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("tls: read cert_file and key_file: %w", err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if t.ClientCAFile != "" {
		c.ClientAuth = tls.VerifyClientCertIfGiven
		if c.ClientCAs, err = pool("client_ca_file", t.ClientCAFile); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// pool reads the authorities that the file of a key holds.
func pool(key, file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("tls: read %s: %w", key, err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("tls: %s %s holds no PEM certificate", key, file)
	}
	return authorities, nil
}
