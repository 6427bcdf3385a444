// Package tlsfiles makes the TLS of listeners and of connections to servers from files,
// which are reread when they change. It imports nothing of the daemon. The tags of its
// types are for package settings.
package tlsfiles

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strings"
	"time"
)

// Client says how connections to a server are protected. Its paths are those of PEM
// files.
type Client struct {
	Enabled bool `default:"false" help:"connect with TLS"`
	// CA signs the server's certificate; empty means the system's.
	CA string `is:"path" empty:"none" help:"certificates that sign the server's"`
	// Cert and Key are the daemon's own certificate; both or neither.
	Cert string `is:"path" empty:"none" help:"own certificate chain"`
	Key  string `is:"path" empty:"none" help:"own private key"`
	// ServerName is the name that the server's certificate must bear; empty means
	// the dialled host.
	ServerName string `is:"name" empty:"none" help:"name in the server's certificate"`
	// InsecureAnyServerName accepts a certificate of any name that the CA has
	// signed. Anyone with such a certificate can then pose as the server.
	InsecureAnyServerName bool `default:"false" help:"take any name there"`
}

// Server says how a listener is protected. Cert, Key and ClientCA are paths
// of PEM files.
type Server struct {
	// Cert and Key are both set or both empty; empty means plaintext.
	Cert string `is:"path" empty:"none" help:"certificate chain in PEM"`
	Key  string `is:"path" empty:"none" help:"private key in PEM"`
	// ClientCA, if set, must have signed the client's certificate, which is then
	// required.
	ClientCA string `is:"path" empty:"none" help:"certificates that sign clients'"`
	// ClientNames, if there are any, are DNS names, IP addresses or URIs; a
	// client's certificate must bear one of them.
	ClientNames []string `is:"certificate name" empty:"none" help:"names that clients' must bear"`
}

// ServerConfig returns the configuration of a listener, or nil if t.Cert is empty. All
// files are reread when they change. NextProtos is left to the caller. With a client CA
// its VerifyConnection may be called again for an open connection: it says whether the
// client's certificate would be accepted now, by the configuration's Time. ServerConfig
// fails if a file cannot be read, or if t lacks a field that another needs.
func ServerConfig(t Server, log *slog.Logger) (*tls.Config, error) {
	if t.ClientCA == "" && len(t.ClientNames) > 0 {
		return nil, errors.New("names of clients need a client CA")
	}
	if t.Cert == "" {
		if t.Key != "" || t.ClientCA != "" {
			return nil, errors.New("a key or a client CA needs a certificate")
		}
		return nil, nil
	}
	files, err := newCertFiles(t.Cert, t.Key, t.ClientCA, false, log)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: files.GetCertificate}
	if t.ClientCA != "" {
		// crypto/tls would verify against the fixed pool of the Config. A Config
		// for each client (GetConfigForClient) could have a new pool, but not the
		// NextProtos that gRPC and HTTP add to copies of this one. So the Config
		// requires a certificate, and the callback verifies it.
		c.ClientAuth = tls.RequireAnyClientCert
		c.VerifyConnection = files.VerifyClient(t.ClientNames, func() time.Time {
			if c.Time != nil {
				return c.Time()
			}
			return time.Now()
		})
		// A resumed session keeps the client certificate that it began with. After a
		// change of the CA, a client with a new certificate must not be refused because
		// of the old one. Connections live long, so sessions save little.
		c.SessionTicketsDisabled = true
	}
	return c, nil
}

// ClientConfig returns a function that makes the Config of one connection from the
// files as they are then, or nil if TLS is off. serverName is the dialled host,
// host:port or path; t.ServerName overrides it. ClientConfig fails if a file cannot
// be read.
func ClientConfig(t Client, log *slog.Logger) (func(serverName string) (*tls.Config, error), error) {
	return clientConfig(t, false, log)
}

// ClientConfigBesideSystem is ClientConfig for connections where the certificates of t.CA
// count in addition to the system's, not instead of them.
func ClientConfigBesideSystem(t Client, log *slog.Logger) (func(serverName string) (*tls.Config, error), error) {
	return clientConfig(t, true, log)
}

func clientConfig(t Client, besideSystem bool, log *slog.Logger) (func(serverName string) (*tls.Config, error), error) {
	if !t.Enabled {
		return nil, nil
	}
	files, err := newCertFiles(t.Cert, t.Key, t.CA, besideSystem, log)
	if err != nil {
		return nil, err
	}
	return func(serverName string) (*tls.Config, error) {
		if t.ServerName != "" {
			serverName = t.ServerName
		} else if host, _, err := net.SplitHostPort(serverName); err == nil {
			serverName = host
		} else if strings.HasPrefix(serverName, "/") {
			serverName = "" // a socket's path has no host
		}
		if serverName == "" && !t.InsecureAnyServerName {
			return nil, errors.New("TLS needs the name of the server; set redis.tls.server_name")
		}
		c := &tls.Config{
			MinVersion:           tls.VersionTLS12,
			ServerName:           strings.TrimSuffix(serverName, "."),
			RootCAs:              files.Roots(),
			GetClientCertificate: files.GetClientCertificate,
		}
		if t.InsecureAnyServerName {
			// crypto/tls verifies with the name or not at all.
			c.InsecureSkipVerify, c.VerifyConnection = true, files.VerifyServer
		}
		return c, nil
	}, nil
}
