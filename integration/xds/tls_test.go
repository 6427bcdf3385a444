package xds_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/certtest"
	"github.com/ratelimitd/ratelimitd/internal/config/xds"
	"github.com/ratelimitd/ratelimitd/internal/tlsfiles"
)

// gatewayNames are those in the certificate of Envoy Gateway's server.
var gatewayNames = []string{"envoy-gateway", "envoy-gateway.envoy-gateway-system.svc.cluster.local"}

// manageTLS starts a server as Envoy Gateway's is: TLS 1.3, and a client's
// certificate of its own authority is required.
func manageTLS(t *testing.T, ca *certtest.Authority) *management {
	t.Helper()
	server := ca.Issue(t, x509.Certificate{DNSNames: gatewayNames, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	pool := x509.NewCertPool()
	pool.AddCert(ca.Cert)
	return manage(t, &tls.Config{Certificates: []tls.Certificate{server.TLS(t)}, MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool})
}

// clientTLS is TLS with a certificate of the authority.
func clientTLS(t *testing.T, ca *certtest.Authority) tlsfiles.Client {
	t.Helper()
	pair := ca.Issue(t, x509.Certificate{DNSNames: []string{"*.envoy-gateway-system"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return tlsfiles.Client{Enabled: true, CA: ca.File, Cert: pair.CertFile, Key: pair.KeyFile, ServerName: "envoy-gateway"}
}

func TestWrongTLSIsReportedInTheStatusAndTheMetrics(t *testing.T) {
	t.Parallel()
	ca, other := certtest.New(t, "gateway"), certtest.New(t, "other")
	for _, c := range []struct {
		name, want string
		change     func(*tlsfiles.Client)
	}{
		{"another CA", "unknown authority", func(c *tlsfiles.Client) { c.CA = other.File }},
		{"another name", "certificate is valid for", func(c *tlsfiles.Client) { c.ServerName = "gateway" }},
		{"no client certificate", "certificate required", func(c *tlsfiles.Client) { c.Cert, c.Key = "", "" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := manageTLS(t, ca)
			m.set("1", domain("d", 5))
			security := clientTLS(t, ca)
			c.change(&security)
			f := follow(t, xds.Options{Address: m.address, TLS: security})
			// The log has the first failure only, which may be that of a write.
			asynctest.Eventually(t, c.want, func() bool { return strings.Contains(f.statusPage(), c.want) })
			f.wantMetric("ratelimitd_xds_connection_failures_total", "", over(1))
			if f.live.Rules() != nil {
				t.Error("limits came")
			}
			asynctest.Eventually(t, "few lines", func() bool { return f.log.Count("\n") < 10 })
		})
	}
}

func TestTheClientsCertificateIsReadAgain(t *testing.T) {
	t.Parallel()
	ca, other := certtest.New(t, "gateway"), certtest.New(t, "other")
	m := manageTLS(t, ca)
	m.set("1", domain("d", 5))
	security := clientTLS(t, ca)
	good := certtest.Pair{CertFile: security.Cert, KeyFile: security.Key}
	wrong := other.IssueLoopback(t, "client")
	security.Cert, security.Key = wrong.CertFile, wrong.KeyFile
	f := follow(t, xds.Options{Address: m.address, TLS: security})
	asynctest.Eventually(t, "a refused certificate", func() bool { return strings.Contains(f.statusPage(), "certificate") })
	for _, c := range [][2]string{{good.CertFile, wrong.CertFile}, {good.KeyFile, wrong.KeyFile}} {
		content, err := os.ReadFile(c[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(c[1], content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f.wantRequests("d", 5)
}
