package servertest

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ratelimitd/ratelimitd/internal/certtest"
)

// ClientTLS trusts an authority, and shows a certificate of signer, if any.
func ClientTLS(t *testing.T, ca, signer *certtest.Authority) *tls.Config {
	t.Helper()
	c := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	c.RootCAs.AddCert(ca.Cert)
	if signer != nil {
		// As a callback it shows the certificate even to a server that did not name
		// its CA.
		leaf := IssueFor(t, signer, x509.ExtKeyUsageClientAuth).TLS(t)
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &leaf, nil }
	}
	return c
}

// IssueFor returns a certificate for 127.0.0.1 with one use.
func IssueFor(t *testing.T, signer *certtest.Authority, use x509.ExtKeyUsage) certtest.Pair {
	t.Helper()
	return signer.Issue(t, x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{use}})
}

// WithTLS dials as ClientTLS says.
func WithTLS(t *testing.T, ca, signer *certtest.Authority) grpc.DialOption {
	return grpc.WithTransportCredentials(credentials.NewTLS(ClientTLS(t, ca, signer)))
}

// Plain dials without TLS.
func Plain() grpc.DialOption { return grpc.WithTransportCredentials(insecure.NewCredentials()) }
