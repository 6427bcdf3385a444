package redisstore_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// wantLimitOfTwo takes from a limit by two stores in turn: they must share it.
func wantLimitOfTwo(t *testing.T, a, b *redisstore.Store) {
	t.Helper()
	l := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 2, Period: 24 * time.Hour})
	for i, s := range []*redisstore.Store{a, b, a, b} {
		if got := take(t, s, hit(l, "x", 1))[0]; got.Allowed() != (i < 2) || got.Degraded {
			t.Errorf("take %d: %+v", i+1, got)
		}
	}
}

func TestUnixSocketSharesLimitsWithThePort(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(filetest.SocketFolder(t), "redis.sock")
	server := redistest.Start(t, "--unixsocket", socket, "--requirepass", "right-secret")
	o := options(redisconn.Single, "unix:"+socket)
	if err := open(t, o).Ping(context.Background()); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("without a password the error is %v", err)
	}
	o.Password = func() (string, error) { return "right-secret", nil }
	local := open(t, o)
	o.Addresses = []string{server.Addr()}
	wantLimitOfTwo(t, local, open(t, o))

	o.Addresses = []string{"unix:" + socket + ".none"}
	if err := open(t, o).Ping(context.Background()); err == nil || !strings.Contains(err.Error(), socket+".none") {
		t.Errorf("where there is no socket the error is %v", err)
	}
}

func selfSigned(t *testing.T, name string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}
