package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/certtest"
)

// TestClientMustBearOneOfTheNames: a certificate that the CA signed is accepted if it
// bears a name of the list.
func TestClientMustBearOneOfTheNames(t *testing.T) {
	ca := certtest.New(t, "ca")
	f := tlsFolder{t, t.TempDir()}
	cert, key := issue(t, ca, "server", x509.ExtKeyUsageServerAuth)
	f.writePair("s", cert, key)
	f.write("ca.PEM", ca.PEM)
	cert, key = issue(t, ca, "by-name", x509.ExtKeyUsageClientAuth)
	f.writePair("name", cert, key)
	cert, key = issue(t, ca, "by-uri", x509.ExtKeyUsageClientAuth, &url.URL{Scheme: "spiffe", Host: "test", Path: "/envoy"})
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
			server, err := ServerConfig(Server{Cert: f.path("s.crt"), Key: f.path("s.key"), ClientCA: f.path("ca.PEM"), ClientNames: names}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for pair, want := range map[string]bool{"name": c.name, "uri": c.uri} {
				dial, err := ClientConfig(Client{Enabled: true, CA: f.path("ca.PEM"), Cert: f.path(pair + ".crt"), Key: f.path(pair + ".key")}, nil)
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

// TestAnyServerNameChecksTheCAAndTheUse: with InsecureAnyServerName the name does not
// matter, but the CA and the use do.
func TestAnyServerNameChecksTheCAAndTheUse(t *testing.T) {
	ca, stranger := certtest.New(t, "ca"), certtest.New(t, "stranger")
	f := tlsFolder{t, t.TempDir()}
	f.write("ca.PEM", ca.PEM)
	servers := map[string]*tls.Config{}
	issue := func(name string, a *certtest.Authority, use x509.ExtKeyUsage) {
		t.Helper()
		cert, key := issue(t, a, name, use)
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
			dial, err := ClientConfig(Client{Enabled: true, CA: f.path("ca.PEM"), InsecureAnyServerName: c.any}, nil)
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
	dial, err := ClientConfig(Client{Enabled: true, CA: f.path("ca.PEM")}, nil)
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
		t.Error("a connection without an address gets a Config")
	}
	if c, err := dial("[::1]:6379"); err != nil || c.ServerName != "::1" || c.RootCAs != nil {
		t.Errorf("got %+v, %v", c, err)
	}
}
