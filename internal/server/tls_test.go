package server_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/certtest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	"github.com/ratelimitd/ratelimitd/internal/tlsfiles"
)

// startTLS runs a server whose gRPC and HTTP ports want certificates of the
// authority. Its gRPC client has one.
func startTLS(t *testing.T, ca *certtest.Authority) *servertest.Daemon {
	t.Helper()
	own := servertest.IssueFor(t, ca, x509.ExtKeyUsageServerAuth)
	d := servertest.Run(t, servertest.OneLimit, func(o *server.Options) {
		for _, c := range []**tls.Config{&o.GRPC.TLS, &o.HTTP.TLS} {
			var err error
			if *c, err = tlsfiles.ServerConfig(tlsfiles.Server{Cert: own.CertFile, Key: own.KeyFile, ClientCA: ca.File}, o.Log); err != nil {
				t.Fatal(err)
			}
		}
	})
	d.Dial(servertest.WithTLS(t, ca, ca))
	asynctest.Eventually(t, "SERVING", func() bool { return d.Check("") == "SERVING" })
	return d
}

// wantRefused asks over gRPC and expects no answer.
func wantRefused(t *testing.T, d *servertest.Daemon, who string) {
	t.Helper()
	if _, err := d.Try(servertest.Request("api", 1, "user=x")); status.Code(err) != codes.Unavailable {
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
			client := &http.Client{Timeout: servertest.Patience, Transport: &http.Transport{TLSClientConfig: servertest.ClientTLS(t, ca, c.signer), ForceAttemptHTTP2: true}}
			response, err := client.Post("https://"+d.Server.Address("http")+"/json", "application/json", strings.NewReader(servertest.BodyX))
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

			d.Dial(servertest.WithTLS(t, ca, c.signer))
			if c.refused {
				wantRefused(t, d, c.name)
				return
			}
			servertest.WantShown(t, d.Ask("api", 1, "user=x"), "OK; OK u 5/HOUR remaining 3 reset 59m50s")
		})
	}
	if p := d.Get("http", "/healthcheck"); p.Code != 400 {
		t.Errorf("plain text over HTTP: %d", p.Code)
	}
}
