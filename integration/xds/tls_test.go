package xds_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
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

func TestAServerThatRequiresACertificateIsFollowed(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t, "gateway")
	m := manageTLS(t, ca)
	m.set("1", domain("d", 5))
	f := follow(t, xds.Options{Address: m.address, TLS: clientTLS(t, ca)})
	f.wantRequests("d", 5)
}

// The service that this takes the place of says nothing of any of these.
func TestWrongTLSIsToldInTheLogAndTheMetrics(t *testing.T) {
	t.Parallel()
	ca, other := certtest.New(t, "gateway"), certtest.New(t, "other")
	for _, c := range []struct {
		name, want string
		change     func(*tlsfiles.Client)
	}{
		{"another CA", "its certificate is not signed by limits.xds.tls.ca", func(c *tlsfiles.Client) { c.CA = other.File }},
		{"another name", "its certificate does not bear the name that was dialled; limits.xds.tls.server_name names another", func(c *tlsfiles.Client) { c.ServerName = "gateway" }},
		{"the dialled address as a name", "its certificate does not bear the address that was dialled", func(c *tlsfiles.Client) { c.ServerName = "" }},
		{"no client certificate", "it wants a client's certificate, which is limits.xds.tls.cert", func(c *tlsfiles.Client) { c.Cert, c.Key = "", "" }},
		{"a client certificate of another CA", "it refuses the client's certificate, which is limits.xds.tls.cert", func(c *tlsfiles.Client) {
			pair := other.IssueLoopback(t, "client")
			c.Cert, c.Key = pair.CertFile, pair.KeyFile
		}},
		{"no TLS", "it ends the connection at once; does it want TLS", func(c *tlsfiles.Client) { c.Enabled = false }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := manageTLS(t, ca)
			m.set("1", domain("d", 5))
			security := clientTLS(t, ca)
			c.change(&security)
			f := follow(t, xds.Options{Address: m.address, TLS: security})
			f.wantLog(c.want)
			f.wantMetric("ratelimitd_xds_connection_failures_total", "", over(1))
			if f.live.Rules() != nil {
				t.Error("limits came")
			}
			asynctest.Eventually(t, "few lines", func() bool { return f.log.Count("\n") < 10 })
		})
	}
}

func TestWrongAddressesAreTold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, address, want string }{
		{"a name that is none", "no-such-host.invalid:18000", "limits.xds.address"},
		{"a port where nothing listens", "127.0.0.1:1", "nothing listens at limits.xds.address; no limits are loaded yet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := follow(t, xds.Options{Address: c.address})
			f.wantLog(c.want)
		})
	}
}

func TestServersThatSpeakAnotherProtocolAreTold(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t, "gateway")
	const silent = "it accepts the connection and says nothing"
	for _, c := range []struct {
		name, says, want string
		tls              tlsfiles.Client
	}{
		{"nothing", "", silent, tlsfiles.Client{}},
		{"nothing where TLS is asked for", "", silent, clientTLS(t, ca)},
		{"HTTP/1", "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "it ends the connection at once", tlsfiles.Client{}},
		{"another HTTP/2", strings.Repeat("\x00", 100), "it does not speak gRPC", tlsfiles.Client{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					defer conn.Close()
					_, _ = io.WriteString(conn, c.says)
				}
			}()
			f := follow(t, xds.Options{Address: l.Addr().String(), TLS: c.tls})
			f.wantLog(c.want)
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
	f.wantLog("it refuses the client's certificate")
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
