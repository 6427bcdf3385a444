package server_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/certtest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/tlsfiles"
)

// clientTLS trusts an authority, and shows a certificate of signer, if any.
func clientTLS(t *testing.T, ca, signer *certtest.Authority) *tls.Config {
	t.Helper()
	c := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	c.RootCAs.AddCert(ca.Cert)
	if signer != nil {
		// As a callback it shows the certificate even to a server that did not name
		// its CA.
		leaf := issueFor(t, signer, x509.ExtKeyUsageClientAuth).TLS(t)
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &leaf, nil }
	}
	return c
}

// issueFor returns a certificate for 127.0.0.1 with one use.
func issueFor(t *testing.T, signer *certtest.Authority, use x509.ExtKeyUsage) certtest.Pair {
	t.Helper()
	return signer.Issue(t, x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{use}})
}

// withTLS dials as clientTLS says.
func withTLS(t *testing.T, ca, signer *certtest.Authority) grpc.DialOption {
	return grpc.WithTransportCredentials(credentials.NewTLS(clientTLS(t, ca, signer)))
}

func plain() grpc.DialOption { return grpc.WithTransportCredentials(insecure.NewCredentials()) }

// startTLS runs a server whose gRPC and HTTP ports want certificates of the
// authority. Its gRPC client has one.
func startTLS(t *testing.T, ca *certtest.Authority) *daemon {
	t.Helper()
	own := issueFor(t, ca, x509.ExtKeyUsageServerAuth)
	d := run(t, oneLimit, func(o *server.Options) {
		for _, c := range []**tls.Config{&o.GRPC.TLS, &o.HTTP.TLS} {
			var err error
			if *c, err = tlsfiles.ServerConfig(tlsfiles.Server{Cert: own.CertFile, Key: own.KeyFile, ClientCA: ca.File}, o.Log); err != nil {
				t.Fatal(err)
			}
		}
	})
	d.dial(withTLS(t, ca, ca))
	asynctest.Eventually(t, "SERVING", func() bool { return d.check("") == "SERVING" })
	return d
}

// wantRefused asks over gRPC and expects no answer.
func (d *daemon) wantRefused(t *testing.T, who string) {
	t.Helper()
	if _, err := d.try(request("api", 1, "user=x")); status.Code(err) != codes.Unavailable {
		t.Errorf("%s over gRPC: %v, want %s", who, err, codes.Unavailable)
	}
}

func TestOnlyTrustedClientCertificatesAreLetIn(t *testing.T) {
	t.Parallel()
	ca, stranger := certtest.New(t, "ca"), certtest.New(t, "stranger")
	d := startTLS(t, ca)
	for _, c := range []struct {
		name    string
		signer  *certtest.Authority
		refused bool
	}{
		{"without a certificate", nil, true},
		{"with a stranger's certificate", stranger, true},
		{"with a certificate", ca, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: clientTLS(t, ca, c.signer), ForceAttemptHTTP2: true}}
			response, err := client.Post("https://"+d.srv.Address("http")+"/json", "application/json", strings.NewReader(bodyX))
			if (err != nil) != c.refused {
				t.Errorf("over HTTP: %v", err)
			}
			if err == nil {
				response.Body.Close()
				if response.StatusCode != 200 || response.ProtoMajor != 2 {
					t.Errorf("got %s %s", response.Proto, response.Status)
				}
			}
			client.CloseIdleConnections()

			d.dial(withTLS(t, ca, c.signer))
			if c.refused {
				d.wantRefused(t, c.name)
				return
			}
			wantShown(t, d.ask("api", 1, "user=x"), "OK; OK u 5/HOUR remaining 3 reset 59m50s")
		})
	}
	if p := d.get("http", "/healthcheck"); p.code != 400 {
		t.Errorf("plain text over HTTP: %d", p.code)
	}
}
