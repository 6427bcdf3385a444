package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// authority signs certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t testing.TB, dir, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key, writePEM(t, dir, name+".pem", "CERTIFICATE", der)}
}

// issue writes a certificate for 127.0.0.1 and its key.
func (a *authority) issue(t testing.TB, dir, name string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return writePEM(t, dir, name+".pem", "CERTIFICATE", der), writePEM(t, dir, name+".key", "PRIVATE KEY", keyDER)
}

func writePEM(t testing.TB, dir, name, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMutualTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := newAuthority(t, dir, "ca")
	serverCert, serverKey := ca.issue(t, dir, "server")
	clientCert, clientKey := ca.issue(t, dir, "client")
	strangers := newAuthority(t, dir, "strangers")
	strangerCert, strangerKey := strangers.issue(t, dir, "stranger")
	limits := t.TempDir()
	write(t, limits, "api.yaml", limitsOf3)

	tls := []string{"--limits-path", limits, "--grpc-tls-cert", serverCert, "--grpc-tls-key", serverKey, "--grpc-tls-client-ca", ca.file}
	if d := launch(t, nil, tls...); d.wait() != 1 || !strings.Contains(d.logText(), "http.") {
		t.Errorf("plain HTTP beside gRPC that asks for client certificates is accepted:\n%s", d.logText())
	}
	d := start(t, append(tls, "--http-address", "")...)
	query := func(args ...string) (string, string, int) {
		return command(t, append([]string{"query", "--address", d.grpc, "--domain", "api", "--tls-ca", ca.file, "user=a"}, args...)...)
	}
	if out, stderr, code := query("--tls-cert", clientCert, "--tls-key", clientKey); code != 0 {
		t.Errorf("with a good certificate: %d %q %q", code, out, stderr)
	}
	if _, _, code := query(); code != 1 {
		t.Errorf("without a certificate: %d", code)
	}
	if _, _, code := query("--tls-cert", strangerCert, "--tls-key", strangerKey); code != 1 {
		t.Errorf("with a stranger's certificate: %d", code)
	}
	// The container's health check needs no flags.
	env := []string{
		"RATELIMITD_GRPC_ADDRESS=" + d.grpc, "RATELIMITD_GRPC_TLS_CERT=" + serverCert, "RATELIMITD_GRPC_TLS_KEY=" + serverKey,
		"RATELIMITD_GRPC_TLS_CLIENT_CA=" + ca.file, "RATELIMITD_HTTP_ADDRESS=",
	}
	if out, stderr, code := commandEnv(t, env, "health"); code != 0 {
		t.Errorf("health with the daemon's environment: %d %q %q", code, out, stderr)
	}

	// New files, same daemon: the certificate of a new authority is shown.
	newCert, newKey := strangers.issue(t, dir, "new")
	for from, to := range map[string]string{newCert: serverCert, newKey: serverKey} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	asynctest.Eventually(t, "the new certificate is shown", func() bool {
		_, _, code := command(t, "query", "--address", d.grpc, "--domain", "api", "--tls-ca", strangers.file,
			"--tls-cert", clientCert, "--tls-key", clientKey, "user=b")
		return code != 1
	})
}

func TestRedisOverTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := newAuthority(t, dir, "ca")
	cert, key := ca.issue(t, dir, "redis")
	secure := freeAddress(t)
	_, port, _ := net.SplitHostPort(secure)
	redistest.Start(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca.file)
	limits := t.TempDir()
	write(t, limits, "api.yaml", limitsOf3)
	flags := append(redisFlags("single", secure), "--limits-path", limits, "--redis-tls-enabled", "--redis-tls-cert", cert, "--redis-tls-key", key)
	d := start(t, append(flags, "--redis-tls-ca", ca.file)...)
	if !ok(d.ask("api", 3, "user=a")) || ok(d.ask("api", 1, "user=a")) {
		t.Error("over TLS the limit of 3 does not hold")
	}
	wrong := launch(t, nil, append(flags, "--redis-tls-ca", newAuthority(t, dir, "other").file)...)
	if line := wrong.waitForLog("redis.tls.ca"); !strings.Contains(line, "unknown authority") {
		t.Errorf("a server of an unknown authority gives the log %s", line)
	}
}
