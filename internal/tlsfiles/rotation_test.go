package tlsfiles

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/certtest"
)

func TestServerCertificateRotates(t *testing.T) {
	ca := certtest.New(t, "ca")
	f := tlsFolder{t, t.TempDir()}
	oldCert, oldKey := issue(t, ca, "old", x509.ExtKeyUsageServerAuth)
	newCert, newKey := issue(t, ca, "new", x509.ExtKeyUsageServerAuth)
	f.writePair("s", oldCert, oldKey)
	log, out := logTo()
	server, err := ServerConfig(Server{Cert: f.path("s.crt"), Key: f.path("s.key")}, log)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.Cert)
	client := &tls.Config{RootCAs: pool, ServerName: "daemon.test"}
	expect := func(want string) {
		t.Helper()
		for range 2 {
			if got, _, _, err := shake(server, client); err != nil || got != want {
				t.Errorf("got %q, %v; want %q", got, err, want)
			}
		}
	}
	expect("old")
	if got := out.String(); got != "" {
		t.Errorf("logged without a reason: %s", got)
	}

	f.write("s.crt", newCert) // the key is still of the other
	expect("old")
	if got := out.String(); strings.Count(got, "level=ERROR") != 1 || !strings.Contains(got, "private key does not match public key") {
		t.Errorf("want the mismatch logged once, got: %s", got)
	}
	f.write("s.key", newKey)
	expect("new")
	if got := out.String(); strings.Count(got, "level=INFO") != 1 {
		t.Errorf("want the rotation logged once, got: %s", got)
	}

	f.write("s.crt", []byte("rubbish"))
	expect("new")
	if err := os.Remove(f.path("s.crt")); err != nil {
		t.Fatal(err)
	}
	expect("new")
	if got := out.String(); strings.Count(got, "level=ERROR") != 3 {
		t.Errorf("want each new failure logged once, got: %s", got)
	}
	f.write("s.crt", newCert)
	expect("new")
	if got := out.String(); strings.Count(got, "level=INFO") != 2 {
		t.Errorf("want the recovery logged once, got: %s", got)
	}
	for _, secret := range []string{string(oldKey), string(newKey), "PRIVATE"} {
		if strings.Contains(out.String(), secret) {
			t.Error("the log shows a key")
		}
	}
}

// TestSymlinkSwapIsSeen rotates as Kubernetes does: the folder of the files is a link,
// which is replaced.
func TestSymlinkSwapIsSeen(t *testing.T) {
	ca := certtest.New(t, "ca")
	f := tlsFolder{t, t.TempDir()}
	stamp := time.Now().Add(-time.Hour) // the same for both: only the file differs
	for _, name := range []string{"one", "two"} {
		if err := os.Mkdir(f.path(name), 0o700); err != nil {
			t.Fatal(err)
		}
		cert, key := issue(t, ca, name, x509.ExtKeyUsageServerAuth)
		f.writePair(name+"/s", cert, key)
		for _, end := range []string{"/s.crt", "/s.key"} {
			if err := os.Chtimes(f.path(name+end), stamp, stamp); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Symlink("one", f.path("now")); err != nil {
		t.Fatal(err)
	}
	files, err := newCertFiles(f.path("now/s.crt"), f.path("now/s.key"), "", false, nil)
	if err != nil {
		t.Fatal(err)
	}
	name := func() string {
		pair, err := files.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf.Subject.CommonName
	}
	if got := name(); got != "one" {
		t.Errorf("got %s", got)
	}
	if files.pair.changed() {
		t.Error("old files that are untouched count as changed")
	}
	if err := os.Symlink("two", f.path("next")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(f.path("next"), f.path("now")); err != nil {
		t.Fatal(err)
	}
	if got := name(); got != "two" {
		t.Errorf("after the swap: got %s", got)
	}
}

// TestChangeWithinAFileStampIsSeen writes the same number of bytes twice, within what may
// be one tick of the file system's clock.
func TestChangeWithinAFileStampIsSeen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	now := time.Now()
	write := func(text string) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, now, now)); err != nil {
			t.Fatal(err)
		}
	}
	write("a")
	r, err := newRereadFiles("text", nil, func(c [][]byte) (string, error) { return string(c[0]), nil }, path)
	if err != nil {
		t.Fatal(err)
	}
	write("b")
	if got := r.get(); got != "b" {
		t.Errorf("got %q, want b", got)
	}
}

func TestClientCARotates(t *testing.T) {
	ca, oldCA, newCA := certtest.New(t, "ca"), certtest.New(t, "old"), certtest.New(t, "new")
	f := tlsFolder{t, t.TempDir()}
	cert, key := issue(t, ca, "server", x509.ExtKeyUsageServerAuth)
	f.writePair("s", cert, key)
	f.write("ca.PEM", ca.PEM)
	f.write("clients.pem", oldCA.PEM)
	cert, key = issue(t, oldCA, "of-old", x509.ExtKeyUsageClientAuth)
	f.writePair("old", cert, key)
	cert, key = issue(t, newCA, "of-new", x509.ExtKeyUsageClientAuth)
	f.writePair("new", cert, key)
	cert, key = issue(t, oldCA, "no-client", x509.ExtKeyUsageServerAuth)
	f.writePair("misused", cert, key)

	log, out := logTo()
	server, err := ServerConfig(Server{Cert: f.path("s.crt"), Key: f.path("s.key"), ClientCA: f.path("clients.pem")}, log)
	if err != nil {
		t.Fatal(err)
	}
	if server.MinVersion != tls.VersionTLS12 || server.NextProtos != nil {
		t.Errorf("MinVersion %x, NextProtos %q", server.MinVersion, server.NextProtos)
	}
	// gRPC and HTTP copy a Config and add protocols to the copy, which must
	// follow the files too.
	server = server.Clone()
	server.NextProtos = []string{"h2"}
	clientOf := func(pair string) *tls.Config {
		t.Helper()
		settings := Client{Enabled: true, CA: f.path("ca.PEM")}
		if pair != "" {
			settings.Cert, settings.Key = f.path(pair+".crt"), f.path(pair+".key")
		}
		dial, err := ClientConfig(settings, log)
		if err != nil {
			t.Fatal(err)
		}
		c, err := dial("daemon.test:6379")
		if err != nil {
			t.Fatal(err)
		}
		c.NextProtos = []string{"h2"}
		return c
	}
	check := func(pair, wantName, wantErr string) {
		t.Helper()
		_, name, _, err := shake(server, clientOf(pair))
		if name != wantName || (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Errorf("%q: got %q, %v; want %q %s", pair, name, err, wantName, wantErr)
		}
	}
	const foreign = "certificate signed by unknown authority"
	check("old", "of-old", "")
	check("new", "", foreign)
	check("", "", "client didn't provide a certificate")
	check("misused", "", "incompatible key usage")

	// A session must not outlive its CA, in either version of TLS.
	var resuming []*tls.Config
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		c := clientOf("old")
		c.MaxVersion = version
		c.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		for range 2 {
			if _, _, resumed, err := shake(server, c); err != nil || resumed {
				t.Fatalf("a session is resumed: %v, %v", resumed, err)
			}
		}
		resuming = append(resuming, c)
	}

	f.write("clients.pem", []byte("rubbish"))
	check("old", "of-old", "")
	check("old", "of-old", "")
	if got := out.String(); strings.Count(got, "no certificate in PEM found") != 1 {
		t.Errorf("want the broken CA logged once, got: %s", got)
	}
	f.write("clients.pem", newCA.PEM)
	check("new", "of-new", "")
	check("old", "", foreign)
	for _, c := range resuming {
		if _, _, _, err := shake(server, c); err == nil {
			t.Errorf("with TLS %x, who only the old CA vouched for is let in", c.MaxVersion)
		}
	}
	f.write("clients.pem", append(bytes.Clone(newCA.PEM), oldCA.PEM...))
	check("new", "of-new", "")
	check("old", "of-old", "")
}

func TestClientTLSRotates(t *testing.T) {
	oldCA, newCA := certtest.New(t, "old"), certtest.New(t, "new")
	f := tlsFolder{t, t.TempDir()}
	cert, key := issue(t, oldCA, "server", x509.ExtKeyUsageServerAuth)
	f.writePair("s", cert, key)
	f.write("ca.PEM", oldCA.PEM)
	f.write("clients.pem", oldCA.PEM)
	cert, key = issue(t, oldCA, "first", x509.ExtKeyUsageClientAuth)
	f.writePair("c", cert, key)
	server, err := ServerConfig(Server{Cert: f.path("s.crt"), Key: f.path("s.key"), ClientCA: f.path("clients.pem")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	dial, err := ClientConfig(Client{
		Enabled: true, CA: f.path("ca.PEM"), Cert: f.path("c.crt"), Key: f.path("c.key"), ServerName: "daemon.test",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	check := func(want string) {
		t.Helper()
		c, err := dial("10.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		if _, name, _, err := shake(server, c); err != nil || name != want {
			t.Errorf("got %q, %v; want %q", name, err, want)
		}
	}
	check("first")
	cert, key = issue(t, oldCA, "second", x509.ExtKeyUsageClientAuth)
	f.writePair("c", cert, key)
	check("second")
	cert, key = issue(t, newCA, "server", x509.ExtKeyUsageServerAuth)
	f.writePair("s", cert, key)
	c, err := dial("")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := shake(server, c); err == nil {
		t.Error("a server of an unknown authority is trusted")
	}
	f.write("ca.PEM", newCA.PEM)
	check("second")
}

// TestRotationUnderLoadFailsNoHandshake: handshakes while the files change see the old
// pair or the new one, never a mixture.
func TestRotationUnderLoadFailsNoHandshake(t *testing.T) {
	ca := certtest.New(t, "ca")
	f := tlsFolder{t, t.TempDir()}
	oldCert, oldKey := issue(t, ca, "old", x509.ExtKeyUsageServerAuth)
	newCert, newKey := issue(t, ca, "new", x509.ExtKeyUsageServerAuth)
	f.writePair("s", oldCert, oldKey)
	files, err := newCertFiles(f.path("s.crt"), f.path("s.key"), "", false, nil)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				pair, err := files.GetCertificate(nil)
				if err != nil || pair == nil {
					t.Errorf("got %v, %v", pair, err)
					return
				}
			}
		})
	}
	for i := range 20 {
		if i%2 == 0 {
			f.writePair("s", newCert, newKey)
		} else {
			f.writePair("s", oldCert, oldKey)
		}
	}
	wg.Wait()
	f.writePair("s", newCert, newKey)
	if pair, _ := files.GetCertificate(nil); pair.Leaf.Subject.CommonName != "new" {
		t.Errorf("at the end: %s", pair.Leaf.Subject.CommonName)
	}
}
