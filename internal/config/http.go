package config

import (
	"net"

	"github.com/chprojector/projector/internal/credentials"
	"github.com/chprojector/projector/internal/ops"
)

func checkHTTP(h HTTP, r *report) {
	r.hostPort("http.address", h.Address, ":8080 or 127.0.0.1:8080")
	r.twins("http.token", h.Token, h.TokenFile)
	const path = "http.tls"
	for _, f := range []struct{ key, value string }{{"cert_file", h.TLS.CertFile}, {"key_file", h.TLS.KeyFile}, {"client_ca_file", h.TLS.ClientCAFile}} {
		if f.value != "" && !h.TLS.Enabled && r.readable(path+".enabled") {
			r.add(path+"."+f.key, "given, but %s.enabled is false; set it to true or remove this key", path)
		}
	}
	if h.TLS.Enabled {
		r.present(path+".cert_file", h.TLS.CertFile, "the server's certificate, PEM")
		r.present(path+".key_file", h.TLS.KeyFile, "the key of the certificate, PEM")
	}
	if h.Pprof && !h.Private() && r.readable("http") {
		r.add("http.pprof", "profiles are shown to everybody who reaches %s; give http.token_file, or listen on 127.0.0.1", h.Address)
	}
}

// Private reports whether only those on this machine, or with a token or a
// certificate, see more than the probes.
func (h HTTP) Private() bool {
	host, _, err := net.SplitHostPort(h.Address)
	return h.Token != "" || h.TokenFile != "" || h.TLS.ClientCAFile != "" ||
		err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

// Server is where metrics, probes and the status page are served, and to whom.
func (c *Config) Server() ops.Config {
	h := c.HTTP
	return ops.Config{Address: h.Address, Token: twin(h.Token, h.TokenFile), Pprof: h.Pprof, TLS: credentials.ServerTLS{
		Enabled: h.TLS.Enabled, CertFile: h.TLS.CertFile, KeyFile: h.TLS.KeyFile, ClientCAFile: h.TLS.ClientCAFile,
	}}
}
