// Package certtest makes certificates for tests. It imports nothing of the
// project.
package certtest

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
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates for one test.
type Authority struct {
	// Cert is its own certificate, PEM the same in PEM, and File a file with that.
	Cert *x509.Certificate
	PEM  []byte
	File string
	key  *ecdsa.PrivateKey
}

// New returns an authority of that name.
func New(t testing.TB, name string) *Authority {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a := &Authority{key: newKey(t)}
	der := sign(t, template, template, a.key, a.key)
	var err error
	if a.Cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.PEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	a.File = write(t, t.TempDir(), "ca.pem", a.PEM)
	return a
}

// Pair is a certificate and its key, in PEM and in files.
type Pair struct {
	Cert, Key         []byte
	CertFile, KeyFile string
}

// Issue returns a certificate with the names and uses of the template.
func (a *Authority) Issue(t testing.TB, template x509.Certificate) Pair {
	t.Helper()
	key := newKey(t)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der := sign(t, &template, a.Cert, key, a.key)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	p := Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
	}
	dir := t.TempDir()
	p.CertFile, p.KeyFile = write(t, dir, "tls.crt", p.Cert), write(t, dir, "tls.key", p.Key)
	return p
}

// IssueLoopback returns a certificate for 127.0.0.1, for servers and clients.
func (a *Authority) IssueLoopback(t testing.TB, name string) Pair {
	t.Helper()
	return a.Issue(t, x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
}

// Files returns the paths of the files.
func (p Pair) Files() (cert, key string) { return p.CertFile, p.KeyFile }

// TLS returns the pair as crypto/tls has it.
func (p Pair) TLS(t testing.TB) tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign returns a certificate in DER. It is good for an hour, unless the template says
// when it ends.
func sign(t testing.TB, template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) []byte {
	t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func write(t testing.TB, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
