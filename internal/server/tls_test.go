package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/tlsfiles"
)

// authority signs certificates for one test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key = a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// sign makes a certificate; an authority that has none yet signs its own.
func (a *authority) sign(t *testing.T, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, parentKey := a.cert, a.key
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func (a *authority) issue(t *testing.T, use x509.ExtKeyUsage) tls.Certificate {
	t.Helper()
	cert, key := a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "leaf"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{use},
	})
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

// clientTLS trusts the authority, and shows a certificate of signer, if any.
func (a *authority) clientTLS(t *testing.T, signer *authority) *tls.Config {
	t.Helper()
	c := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	c.RootCAs.AddCert(a.cert)
	if signer != nil {
		// As a callback, it is shown to a server that did not name its CA too.
		leaf := signer.issue(t, x509.ExtKeyUsageClientAuth)
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &leaf, nil }
	}
	return c
}

func (a *authority) client(t *testing.T, signer *authority) credentials.TransportCredentials {
	return credentials.NewTLS(a.clientTLS(t, signer))
}

func plain() grpc.DialOption { return grpc.WithTransportCredentials(insecure.NewCredentials()) }

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// startTLS runs a server that wants certificates of the authority on gRPC and
// HTTP. Its gRPC client has one.
func startTLS(t *testing.T, ca *authority) *daemon {
	t.Helper()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	leaf := ca.issue(t, x509.ExtKeyUsageServerAuth)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, path("tls.crt"), "CERTIFICATE", leaf.Certificate[0])
	writePEM(t, path("tls.key"), "PRIVATE KEY", pkcs8)
	writePEM(t, path("ca.crt"), "CERTIFICATE", ca.cert.Raw)
	d := run(t, oneLimit, func(o *server.Options) {
		for _, c := range []**tls.Config{&o.GRPC.TLS, &o.HTTP.TLS} {
			if *c, err = tlsfiles.ServerConfig(tlsfiles.Server{Cert: path("tls.crt"), Key: path("tls.key"), ClientCA: path("ca.crt")}, o.Log); err != nil {
				t.Fatal(err)
			}
		}
	})
	d.dial(grpc.WithTransportCredentials(ca.client(t, ca)))
	asynctest.Eventually(t, "SERVING", func() bool { return d.check("") == "SERVING" })
	return d
}

// wantRefused asks over gRPC and expects not to be heard.
func (d *daemon) wantRefused(t *testing.T, who string) {
	t.Helper()
	if _, err := d.try(request("api", 1, "user=x")); status.Code(err) != codes.Unavailable {
		t.Errorf("%s over gRPC: %v, want %s", who, err, codes.Unavailable)
	}
}

func TestClientCertificates(t *testing.T) {
	t.Parallel()
	ca, stranger := newAuthority(t), newAuthority(t)
	d := startTLS(t, ca)
	for _, c := range []struct {
		name    string
		signer  *authority
		refused bool
	}{
		{"without a certificate", nil, true},
		{"with a stranger's certificate", stranger, true},
		{"with a certificate", ca, false},
	} {
		client := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: ca.clientTLS(t, c.signer), ForceAttemptHTTP2: true}}
		response, err := client.Post("https://"+d.srv.Address("http")+"/json", "application/json", strings.NewReader(bodyX))
		if (err != nil) != c.refused {
			t.Errorf("%s over HTTP: %v", c.name, err)
		}
		if err == nil {
			response.Body.Close()
			if response.StatusCode != 200 || response.ProtoMajor != 2 {
				t.Errorf("%s: %s %s", c.name, response.Proto, response.Status)
			}
		}
		client.CloseIdleConnections()

		d.dial(grpc.WithTransportCredentials(ca.client(t, c.signer)))
		if c.refused {
			d.wantRefused(t, c.name)
			continue
		}
		wantShown(t, d.ask("api", 1, "user=x"), "OK; OK u 5/HOUR remaining 3 reset 59m50s")
	}
	if p := d.get("http", "/healthcheck"); p.code != 400 {
		t.Errorf("plain text over HTTP: %d", p.code)
	}
}
