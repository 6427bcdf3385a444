// Package tlsfiles makes the TLS of listeners and of connections to Redis from
// files, which are read again when they change. It imports nothing of the daemon.
package tlsfiles

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strings"
)

// Client says how the connections to Redis are protected. Its paths are of
// PEM files.
type Client struct {
	Enabled bool
	// CA signs the server's certificate; empty means the system's.
	CA string
	// Cert and Key are what we show the server; both or neither.
	Cert, Key string
	// ServerName is the name that the server's certificate must bear; empty
	// means the host that is dialled.
	ServerName string
	// InsecureAnyServerName takes a certificate of any name; it must still be
	// signed by the CA. Who has any certificate of that CA can pose as Redis.
	InsecureAnyServerName bool
}

// Server says how a listener is protected. Cert, Key and ClientCA are paths
// of PEM files.
type Server struct {
	// Cert and Key are both set or both empty; empty means plaintext.
	Cert, Key string
	// ClientCA, where set, makes client certificates required, signed by it.
	ClientCA string
	// ClientNames, where there are any, are those of which a client's
	// certificate must bear one: a DNS name, an IP address or a URI.
	ClientNames []string
}

// ServerConfig returns what a listener needs, or nil where t.Cert is empty. With
// t.ClientCA, client certificates are required. All files are read again when
// they change. NextProtos is left to the caller.
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
	files, err := newCertFiles(t.Cert, t.Key, t.ClientCA, log)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: files.GetCertificate}
	if t.ClientCA != "" {
		// The library would verify against a pool that is fixed in the Config.
		// A Config for each client (GetConfigForClient) could have a new pool,
		// but not the NextProtos that gRPC and HTTP add to copies of this one.
		// So a certificate is required here, and verified in the callback.
		c.ClientAuth = tls.RequireAnyClientCert
		c.VerifyConnection = files.VerifyClient(t.ClientNames)
		// A session keeps the certificate that it began with. A client that
		// has a new one, after the CA was changed, must not be turned away
		// for the old one in its session; connections here live long anyway.
		c.SessionTicketsDisabled = true
	}
	return c, nil
}

// ClientConfig returns a function that makes the Config for one connection, from
// the files as they are then; nil where TLS is off. serverName is the host,
// host:port or path that is dialled; t.ServerName comes before it.
func ClientConfig(t Client, log *slog.Logger) (func(serverName string) (*tls.Config, error), error) {
	if !t.Enabled {
		return nil, nil
	}
	files, err := newCertFiles(t.Cert, t.Key, t.CA, log)
	if err != nil {
		return nil, err
	}
	return func(serverName string) (*tls.Config, error) {
		if t.ServerName != "" {
			serverName = t.ServerName
		} else if host, _, err := net.SplitHostPort(serverName); err == nil {
			serverName = host
		} else if strings.HasPrefix(serverName, "/") {
			serverName = "" // a socket has no host
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
			// The library looks at the name or at nothing.
			c.InsecureSkipVerify, c.VerifyConnection = true, files.VerifyServer
		}
		return c, nil
	}, nil
}
