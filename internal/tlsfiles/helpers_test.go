package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/certtest"
)

// issue returns a certificate and its key in PEM. It is of name, for the given use, and
// bears the URIs, or without any the name daemon.test.
func issue(t *testing.T, a *certtest.Authority, name string, use x509.ExtKeyUsage, uris ...*url.URL) (cert, key []byte) {
	t.Helper()
	template := x509.Certificate{Subject: pkix.Name{CommonName: name}, URIs: uris, ExtKeyUsage: []x509.ExtKeyUsage{use}}
	if uris == nil {
		template.DNSNames = []string{"daemon.test"}
	}
	pair := a.Issue(t, template)
	return pair.Cert, pair.Key
}

// tlsFolder is where a test keeps its PEM files.
type tlsFolder struct {
	t   *testing.T
	dir string
}

func (f tlsFolder) path(name string) string { return filepath.Join(f.dir, name) }

func (f tlsFolder) write(name string, content []byte) {
	f.t.Helper()
	if err := os.WriteFile(f.path(name), content, 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f tlsFolder) writePair(prefix string, cert, key []byte) {
	f.t.Helper()
	f.write(prefix+".crt", cert)
	f.write(prefix+".key", key)
}

// connected returns both ends of a connection over loopback. A pipe in memory
// won't do: it holds nothing, and TLS has moments when both sides write.
func connected() (a, b net.Conn, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = listener.Close() }()
	if b, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		return nil, nil, err
	}
	a, err = listener.Accept()
	return a, b, err
}

// shake does one handshake, and returns the names that each side saw.
func shake(server, client *tls.Config) (serverName, clientName string, resumed bool, err error) {
	a, b, err := connected()
	if err != nil {
		return "", "", false, err
	}
	deadline := time.Now().Add(30 * time.Second)
	_ = a.SetDeadline(deadline)
	_ = b.SetDeadline(deadline)
	s, c := tls.Server(a, server), tls.Client(b, client)
	done := make(chan error, 1)
	go func() {
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte("!")) // with it comes the session ticket
		}
		_ = a.Close()
		done <- err
	}()
	err = c.Handshake()
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	_ = b.Close()
	// In TLS 1.3 the client is done before the server has verified its
	// certificate, so both sides have to succeed.
	if serverErr := <-done; serverErr != nil {
		return "", "", false, errors.Join(serverErr, err)
	}
	if err != nil {
		return "", "", false, err
	}
	if seen := s.ConnectionState().PeerCertificates; len(seen) > 0 {
		clientName = seen[0].Subject.CommonName
	}
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName, clientName, c.ConnectionState().DidResume, nil
}

func logTo() (*slog.Logger, *asynctest.Buffer) {
	var b asynctest.Buffer
	return slog.New(slog.NewTextHandler(&b, nil)), &b
}
