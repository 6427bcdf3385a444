package tlsfiles

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/asynctest"
)

// authority signs certificates for one test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issue returns certificate and key of name, in PEM, for the given use. It bears
// the URIs, if any, and else the name daemon.test.
func (a *authority) issue(t *testing.T, name string, use x509.ExtKeyUsage, uris ...*url.URL) (cert, key []byte) {
	t.Helper()
	names := []string{"daemon.test"}
	if uris != nil {
		names = nil
	}
	private := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: names, URIs: uris,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{use},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

// tlsFolder is where a test keeps its PEM files.
type tlsFolder struct {
	t   *testing.T
	dir string
}

func (f tlsFolder) path(name string) string { return filepath.Join(f.dir, name) }

func (f tlsFolder) write(name string, content []byte) {
	f.t.Helper()
	if err := os.WriteFile(f.path(name), content, 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f tlsFolder) writePair(prefix string, cert, key []byte) {
	f.t.Helper()
	f.write(prefix+".crt", cert)
	f.write(prefix+".key", key)
}

// connected returns both ends of a connection over loopback. A pipe in memory
// won't do: it holds nothing, and TLS has moments when both sides write.
func connected() (a, b net.Conn, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = listener.Close() }()
	if b, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		return nil, nil, err
	}
	a, err = listener.Accept()
	return a, b, err
}

// shake does one handshake and says whom each side saw.
func shake(server, client *tls.Config) (serverName, clientName string, resumed bool, err error) {
	a, b, err := connected()
	if err != nil {
		return "", "", false, err
	}
	deadline := time.Now().Add(30 * time.Second)
	_ = a.SetDeadline(deadline)
	_ = b.SetDeadline(deadline)
	s, c := tls.Server(a, server), tls.Client(b, client)
	done := make(chan error, 1)
	go func() {
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte("!")) // with it comes the session ticket
		}
		_ = a.Close()
		done <- err
	}()
	err = c.Handshake()
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	_ = b.Close()
	// In TLS 1.3 the client is content before the server has looked at its
	// certificate, so both have to be.
	if serverErr := <-done; serverErr != nil {
		return "", "", false, errors.Join(serverErr, err)
	}
	if err != nil {
		return "", "", false, err
	}
	if seen := s.ConnectionState().PeerCertificates; len(seen) > 0 {
		clientName = seen[0].Subject.CommonName
	}
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName, clientName, c.ConnectionState().DidResume, nil
}

func logTo() (*slog.Logger, *asynctest.Buffer) {
	var b asynctest.Buffer
	return slog.New(slog.NewTextHandler(&b, nil)), &b
}

func TestServerCertificateRotates(t *testing.T) {
	ca := newAuthority(t, "ca")
	f := tlsFolder{t, t.TempDir()}
	oldCert, oldKey := ca.issue(t, "old", x509.ExtKeyUsageServerAuth)
	newCert, newKey := ca.issue(t, "new", x509.ExtKeyUsageServerAuth)
	f.writePair("s", oldCert, oldKey)
	log, out := logTo()
	server, err := ServerConfig(Server{Cert: f.path("s.crt"), Key: f.path("s.key")}, log)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
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

// TestSymlinkSwapIsSeen rotates as Kubernetes does: the folder that the files are in
// is a link, and another takes its place.
func TestSymlinkSwapIsSeen(t *testing.T) {
	ca := newAuthority(t, "ca")
	f := tlsFolder{t, t.TempDir()}
	stamp := time.Now().Add(-time.Hour) // the same for both: only the file differs
	for _, name := range []string{"one", "two"} {
		if err := os.Mkdir(f.path(name), 0o700); err != nil {
			t.Fatal(err)
		}
		cert, key := ca.issue(t, name, x509.ExtKeyUsageServerAuth)
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
	files, err := newCertFiles(f.path("now/s.crt"), f.path("now/s.key"), "", nil)
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
		t.Error("old files that nobody touched count as changed")
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

// TestChangeWithinAFileStampIsSeen writes twice within what may be one tick of the file system's
// clock, the same number of bytes: it must be seen all the same.
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
	ca, oldCA, newCA := newAuthority(t, "ca"), newAuthority(t, "old"), newAuthority(t, "new")
	f := tlsFolder{t, t.TempDir()}
	cert, key := ca.issue(t, "server", x509.ExtKeyUsageServerAuth)
	f.writePair("s", cert, key)
	f.write("ca.pem", ca.pem)
	f.write("clients.pem", oldCA.pem)
	cert, key = oldCA.issue(t, "of-old", x509.ExtKeyUsageClientAuth)
	f.writePair("old", cert, key)
	cert, key = newCA.issue(t, "of-new", x509.ExtKeyUsageClientAuth)
	f.writePair("new", cert, key)
	cert, key = oldCA.issue(t, "no-client", x509.ExtKeyUsageServerAuth)
	f.writePair("misused", cert, key)

	log, out := logTo()
	server, err := ServerConfig(Server{Cert: f.path("s.crt"), Key: f.path("s.key"), ClientCA: f.path("clients.pem")}, log)
	if err != nil {
		t.Fatal(err)
	}
	if server.MinVersion != tls.VersionTLS12 || server.NextProtos != nil {
		t.Errorf("MinVersion %x, NextProtos %q", server.MinVersion, server.NextProtos)
	}
	// The library's users copy a Config and add protocols to the copy: it must
	// still be the one in force.
	server = server.Clone()
	server.NextProtos = []string{"h2"}
	clientOf := func(pair string) *tls.Config {
		t.Helper()
		settings := Client{Enabled: true, CA: f.path("ca.pem")}
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

	// A session of the old days must not outlive its CA, in either version.
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
	f.write("clients.pem", newCA.pem)
	check("new", "of-new", "")
	check("old", "", foreign)
	for _, c := range resuming {
		if _, _, _, err := shake(server, c); err == nil {
			t.Errorf("with TLS %x, who only the old CA vouched for is let in", c.MaxVersion)
		}
	}
	f.write("clients.pem", append(bytes.Clone(newCA.pem), oldCA.pem...))
	check("new", "of-new", "")
	check("old", "of-old", "")
}

func TestClientTLSRotates(t *testing.T) {
	oldCA, newCA := newAuthority(t, "old"), newAuthority(t, "new")
	f := tlsFolder{t, t.TempDir()}
	cert, key := oldCA.issue(t, "server", x509.ExtKeyUsageServerAuth)
	f.writePair("s", cert, key)
	f.write("ca.pem", oldCA.pem)
	f.write("clients.pem", oldCA.pem)
	cert, key = oldCA.issue(t, "first", x509.ExtKeyUsageClientAuth)
	f.writePair("c", cert, key)
	server, err := ServerConfig(Server{Cert: f.path("s.crt"), Key: f.path("s.key"), ClientCA: f.path("clients.pem")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	dial, err := ClientConfig(Client{
		Enabled: true, CA: f.path("ca.pem"), Cert: f.path("c.crt"), Key: f.path("c.key"), ServerName: "daemon.test",
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
	cert, key = oldCA.issue(t, "second", x509.ExtKeyUsageClientAuth)
	f.writePair("c", cert, key)
	check("second")
	cert, key = newCA.issue(t, "server", x509.ExtKeyUsageServerAuth)
	f.writePair("s", cert, key)
	c, err := dial("")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := shake(server, c); err == nil {
		t.Error("a server of an unknown authority is trusted")
	}
	f.write("ca.pem", newCA.pem)
	check("second")
}

// TestClientMustBearOneOfTheNames: of the certificates that the CA signed, those are let in that
// bear a name of the list.
func TestClientMustBearOneOfTheNames(t *testing.T) {
	ca := newAuthority(t, "ca")
	f := tlsFolder{t, t.TempDir()}
	cert, key := ca.issue(t, "server", x509.ExtKeyUsageServerAuth)
	f.writePair("s", cert, key)
	f.write("ca.pem", ca.pem)
	cert, key = ca.issue(t, "by-name", x509.ExtKeyUsageClientAuth)
	f.writePair("name", cert, key)
	cert, key = ca.issue(t, "by-uri", x509.ExtKeyUsageClientAuth, &url.URL{Scheme: "spiffe", Host: "test", Path: "/envoy"})
	f.writePair("uri", cert, key)
	for _, c := range []struct {
		names     string
		name, uri bool
	}{
		{"", true, true},
		{"daemon.test", true, false},
		{"spiffe://test/envoy", false, true},
		{"other.test,spiffe://test/envoy,DAEMON.test", true, true},
		{"by-name,by-uri", false, false}, // common names are no names
		{"other.test", false, false},
		{"spiffe://test/envoy2,.test,test", false, false},
	} {
		t.Run(c.names, func(t *testing.T) {
			var names []string
			if c.names != "" {
				names = strings.Split(c.names, ",")
			}
			server, err := ServerConfig(Server{Cert: f.path("s.crt"), Key: f.path("s.key"), ClientCA: f.path("ca.pem"), ClientNames: names}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for pair, want := range map[string]bool{"name": c.name, "uri": c.uri} {
				dial, err := ClientConfig(Client{Enabled: true, CA: f.path("ca.pem"), Cert: f.path(pair + ".crt"), Key: f.path(pair + ".key")}, nil)
				if err != nil {
					t.Fatal(err)
				}
				client, err := dial("daemon.test:1")
				if err != nil {
					t.Fatal(err)
				}
				_, _, _, err = shake(server, client)
				if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "bears none of the names") {
					t.Errorf("names %q, certificate %s: %v, want it let in: %v", c.names, pair, err, want)
				}
			}
		})
	}
	if _, err := ServerConfig(Server{Cert: f.path("s.crt"), Key: f.path("s.key"), ClientNames: []string{"a"}}, nil); err == nil {
		t.Error("names without a client CA are taken")
	}
}

// TestAnyServerNameChecksTheCAAndTheUse: the name does not matter then, the CA and the use do.
func TestAnyServerNameChecksTheCAAndTheUse(t *testing.T) {
	ca, stranger := newAuthority(t, "ca"), newAuthority(t, "stranger")
	f := tlsFolder{t, t.TempDir()}
	f.write("ca.pem", ca.pem)
	servers := map[string]*tls.Config{}
	issue := func(name string, a *authority, use x509.ExtKeyUsage) {
		t.Helper()
		cert, key := a.issue(t, name, use)
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		servers[name] = &tls.Config{Certificates: []tls.Certificate{pair}}
	}
	issue("good", ca, x509.ExtKeyUsageServerAuth)
	issue("a stranger's", stranger, x509.ExtKeyUsageServerAuth)
	issue("a client's", ca, x509.ExtKeyUsageClientAuth)
	for _, c := range []struct {
		server, addr string
		any          bool
		wantErr      string
	}{
		{"good", "10.0.0.1:6379", false, "doesn't contain any IP SANs"},
		{"good", "10.0.0.1:6379", true, ""},
		{"good", "other.test:6379", false, "not other.test"},
		{"good", "other.test:6379", true, ""},
		{"good", "/run/redis.sock", true, ""},
		{"a stranger's", "daemon.test:6379", true, "signed by unknown authority"},
		{"a client's", "daemon.test:6379", true, "incompatible key usage"},
	} {
		t.Run(fmt.Sprintf("%s at %s, any %t", c.server, c.addr, c.any), func(t *testing.T) {
			dial, err := ClientConfig(Client{Enabled: true, CA: f.path("ca.pem"), InsecureAnyServerName: c.any}, nil)
			if err != nil {
				t.Fatal(err)
			}
			client, err := dial(c.addr)
			if err != nil {
				t.Fatal(err)
			}
			_, _, _, err = shake(servers[c.server], client)
			if (err == nil) != (c.wantErr == "") || err != nil && !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("%s at %s, any name %v: %v, want %q", c.server, c.addr, c.any, err, c.wantErr)
			}
		})
	}
	dial, err := ClientConfig(Client{Enabled: true, CA: f.path("ca.pem")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dial("/run/redis.sock"); err == nil || !strings.Contains(err.Error(), "redis.tls.server_name") {
		t.Errorf("a socket without a name: %v", err)
	}
}

func TestTLSMayBeOffButNotWrong(t *testing.T) {
	f := tlsFolder{t, t.TempDir()}
	if c, err := ServerConfig(Server{}, nil); c != nil || err != nil {
		t.Errorf("ServerTLS without a certificate: %v, %v", c, err)
	}
	if dial, err := ClientConfig(Client{CA: "/none"}, nil); dial != nil || err != nil {
		t.Errorf("ClientTLS that is off: %v", err)
	}
	for name, files := range map[string][3]string{
		"client CA alone": {"", "", "x"}, "key alone": {"", "x", ""}, "certificate alone": {"x", "", ""},
		"none there": {f.path("none"), f.path("none"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ServerConfig(Server{Cert: files[0], Key: files[1], ClientCA: files[2]}, nil); err == nil {
				t.Errorf("%s: no error", name)
			}
		})
	}
	f.write("rubbish", []byte("-----BEGIN RUBBISH-----"))
	_, err := ClientConfig(Client{Enabled: true, CA: f.path("rubbish")}, nil)
	if want := "read CA certificates " + f.path("rubbish") + ": no certificate in PEM found"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	dial, err := ClientConfig(Client{Enabled: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dial(""); err == nil {
		t.Error("a connection to nobody in particular gets a Config")
	}
	if c, err := dial("[::1]:6379"); err != nil || c.ServerName != "::1" || c.RootCAs != nil {
		t.Errorf("got %+v, %v", c, err)
	}
}

// TestRotationUnderLoadFailsNoHandshake: many handshakes at once while the files change see
// the old pair or the new, never a mixture.
func TestRotationUnderLoadFailsNoHandshake(t *testing.T) {
	ca := newAuthority(t, "ca")
	f := tlsFolder{t, t.TempDir()}
	oldCert, oldKey := ca.issue(t, "old", x509.ExtKeyUsageServerAuth)
	newCert, newKey := ca.issue(t, "new", x509.ExtKeyUsageServerAuth)
	f.writePair("s", oldCert, oldKey)
	files, err := newCertFiles(f.path("s.crt"), f.path("s.key"), "", nil)
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
