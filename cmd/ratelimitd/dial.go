package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
)

// target says how to reach a running daemon.
type target struct {
	// settings returns those of the daemon to ask if no address is given.
	settings                  func() (settings.Settings, error)
	address                   string
	tls                       bool
	ca, cert, key, serverName string
}

func (t *target) bind(fs *pflag.FlagSet) {
	fs.StringVar(&t.address, "address", "", "host:port of the daemon's gRPC port, or unix:path of its socket (default: where a daemon with this environment listens)")
	fs.BoolVar(&t.tls, "tls", false, "use TLS; the other --tls flags imply it")
	fs.StringVar(&t.ca, "tls-ca", "", "file of the certificates that sign the daemon's (default: the system's)")
	fs.StringVar(&t.cert, "tls-cert", "", "file of our certificate, where the daemon asks for one")
	fs.StringVar(&t.key, "tls-key", "", "file of our certificate's key")
	fs.StringVar(&t.serverName, "tls-server-name", "", "name in the daemon's certificate (default: the host)")
}

func (t *target) dial() (*grpc.ClientConn, error) {
	address, c := t.address, (*tls.Config)(nil)
	var err error
	if address == "" {
		if address, c, err = t.ownDaemon(); err != nil {
			return nil, err
		}
	}
	if t.tls || t.ca != "" || t.cert != "" || t.key != "" || t.serverName != "" {
		if c, err = t.tlsConfig(); err != nil {
			return nil, err
		}
	}
	creds := insecure.NewCredentials()
	if c != nil {
		creds = credentials.NewTLS(c)
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
	if err != nil {
		return nil, fmt.Errorf("--address %s: %w", address, err)
	}
	return conn, nil
}

// failure returns an error that says why a call on conn failed.
func failure(conn *grpc.ClientConn, err error) error {
	s := status.Convert(err)
	if s.Code() == codes.Unavailable && strings.Contains(s.Message(), "connection error") {
		return fmt.Errorf("%s cannot be reached: %s", conn.Target(), s.Message())
	}
	return fmt.Errorf("%s answers %s: %s", conn.Target(), s.Code(), s.Message())
}

// ownSettings returns the settings of a daemon with this environment.
func ownSettings() (settings.Settings, error) {
	s, _, err := settings.Load(nil, os.Environ(), os.Getenv("RATELIMITD_CONFIG"))
	return s, err
}

// ownDaemon returns the address at which a daemon with this environment listens, as
// seen from the same machine, and its TLS, if it has any.
func (t *target) ownDaemon() (address string, c *tls.Config, err error) {
	s, err := t.settings()
	if err != nil {
		return "", nil, fmt.Errorf("the daemon's settings in this environment, which --address makes needless:\n%w", err)
	}
	own := s.GRPC
	address = own.Address
	if port, ok := onAllAddresses(address); ok {
		address = net.JoinHostPort("127.0.0.1", port)
	}
	if own.Socket != "" {
		address = "unix:" + own.Socket
	}
	if own.TLS.Cert == "" {
		return address, nil, nil
	}
	pair, err := tls.LoadX509KeyPair(own.TLS.Cert, own.TLS.Key)
	if err != nil {
		return "", nil, fmt.Errorf("the daemon's own certificate: %w", err)
	}
	return address, &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{pair}, // where the daemon asks for one
		// The certificate names the daemon for other machines. Here it is known
		// by having the very certificate that is in its file.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			if !bytes.Equal(state.PeerCertificates[0].Raw, pair.Certificate[0]) {
				return errors.New("the daemon shows another certificate than its settings name")
			}
			return nil
		},
	}, nil
}

func (t *target) tlsConfig() (*tls.Config, error) {
	c := &tls.Config{ServerName: t.serverName, MinVersion: tls.VersionTLS12}
	if t.ca != "" {
		pem, err := os.ReadFile(t.ca)
		if err != nil {
			return nil, fmt.Errorf("--tls-ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--tls-ca: %s holds no certificate in PEM", t.ca)
		}
	}
	if t.cert != "" || t.key != "" {
		if t.cert == "" || t.key == "" {
			return nil, errors.New("--tls-cert and --tls-key go together")
		}
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert: %s", strings.TrimPrefix(err.Error(), "tls: "))
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
