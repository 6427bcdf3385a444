package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// certFiles holds a certificate with its key, and the CA certificates of the other side.
// Each is reread when its files change, and nil without files. The methods may be called
// concurrently.
type certFiles struct {
	pair *rereadFiles[*tls.Certificate]
	ca   *rereadFiles[*x509.CertPool]
}

// newCertFiles reads PEM files: a certificate chain and its key, both or neither,
// and CA certificates or none, which besideSystem adds to the system's. A broken file is an error here; later the last good
// one stays.
func newCertFiles(cert, key, ca string, besideSystem bool, log *slog.Logger) (*certFiles, error) {
	if (cert == "") != (key == "") {
		return nil, errors.New("a certificate and its key come together")
	}
	c := &certFiles{}
	var err error
	if cert != "" {
		if c.pair, err = newRereadFiles("certificate", log, parsePair, cert, key); err != nil {
			return nil, fmt.Errorf("read certificate %s with key %s: %w", cert, key, err)
		}
	}
	if ca != "" {
		if c.ca, err = newRereadFiles("CA certificates", log, parsePool(besideSystem), ca); err != nil {
			return nil, fmt.Errorf("read CA certificates %s: %w", ca, err)
		}
	}
	return c, nil
}

func parsePair(contents [][]byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return nil, err
	}
	return &pair, nil
}

func parsePool(besideSystem bool) func(contents [][]byte) (*x509.CertPool, error) {
	return func(contents [][]byte) (*x509.CertPool, error) {
		pool := x509.NewCertPool()
		if besideSystem {
			// A machine may have none.
			if system, err := x509.SystemCertPool(); err == nil {
				pool = system
			}
		}
		if !pool.AppendCertsFromPEM(contents[0]) {
			return nil, errors.New("no certificate in PEM found")
		}
		return pool, nil
	}
}

// GetCertificate is the callback of a server's tls.Config.
func (c *certFiles) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.pair.get(), nil
}

// GetClientCertificate is the callback of a client's tls.Config. Without files it
// presents no certificate, which the server may or may not accept.
func (c *certFiles) GetClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if c.pair == nil {
		return &tls.Certificate{}, nil
	}
	return c.pair.get(), nil
}

// Roots returns the CA certificates in force, or nil, which means the
// system's to a client.
func (c *certFiles) Roots() *x509.CertPool {
	if c.ca == nil {
		return nil
	}
	return c.ca.get()
}

// VerifyClient returns the VerifyConnection callback of a server that requires client
// certificates: they must be signed by the CA in force, be valid now, by that clock, and
// bear one of the names, if there are any.
func (c *certFiles) VerifyClient(names []string, now func() time.Time) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		if err := c.verify(state, x509.ExtKeyUsageClientAuth, now()); err != nil {
			return fmt.Errorf("verify the client's certificate: %w", err)
		}
		if leaf := state.PeerCertificates[0]; len(names) > 0 && !bearsOneOf(leaf, names) {
			return fmt.Errorf("the client's certificate (of %s) bears none of the names %s", leaf.Subject, strings.Join(names, ", "))
		}
		return nil
	}
}

// VerifyServer is the VerifyConnection callback of a client that ignores the
// server's name.
func (c *certFiles) VerifyServer(state tls.ConnectionState) error {
	if err := c.verify(state, x509.ExtKeyUsageServerAuth, time.Now()); err != nil {
		return fmt.Errorf("verify the server's certificate: %w", err)
	}
	return nil
}

// verify checks the other side's certificate against the CA in force at a moment.
func (c *certFiles) verify(state tls.ConnectionState, use x509.ExtKeyUsage, at time.Time) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("there is none")
	}
	options := x509.VerifyOptions{
		Roots:         c.Roots(),
		Intermediates: x509.NewCertPool(),
		KeyUsages:     []x509.ExtKeyUsage{use},
		CurrentTime:   at,
	}
	for _, cert := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(cert)
	}
	_, err := state.PeerCertificates[0].Verify(options)
	return err
}

// bearsOneOf reports whether a certificate is for one of the names: DNS names,
// IP addresses or URIs.
func bearsOneOf(cert *x509.Certificate, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		if cert.VerifyHostname(name) == nil {
			return true
		}
		for _, uri := range cert.URIs {
			if uri.String() == name {
				return true
			}
		}
		return false
	})
}
