package access_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// sum returns the SHA-256 of a token as a file has it.
func sum(token string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(token))) }

func members(t testing.TB, text string) (*access.LiveMembers, string, error) {
	t.Helper()
	path := filetest.Write(t, t.TempDir(), "tokens.yaml", text)
	live := access.NewLiveMembers(path, slog.New(slog.DiscardHandler))
	return live, path, live.Reload()
}

const (
	itemKeys   = "name, role, sha256, certificate"
	memberIs   = "a token or certificate with its role"
	roles      = "viewer, support, operator"
	kinds      = "dns:NAME, uri:URI, email:ADDRESS, ip:ADDRESS, or a name alone, which is of any kind"
	digestText = "the SHA-256 of a token: 64 digits of 0-9 and a-f, as sha256sum prints them"
)

// badMembers are files and all that is wrong with each, after the file's name.
var badMembers = []struct {
	name, text string
	want       []string
}{
	{"empty", "", []string{"1:1: found an empty file; allowed: a list; [] admits no one"}},
	{"a mapping", "name: a\n", []string{"1:1: found a mapping; allowed: a list, each item " + memberIs + "; [] admits no one"}},
	{"a token alone", "s3cret\n", []string{"1:1: found a text; allowed: a list, each item " + memberIs + "; [] admits no one"}},
	{"tokens alone", "- s3cret\n", []string{"1:3: [0]: found a text; allowed: " + memberIs + ", with " + itemKeys}},
	{"the token", "- {name: a, role: viewer, sha256: s3cret}\n", []string{"1:35: [0].sha256: found 6 bytes that are no SHA-256; allowed: " + digestText}},
	{"a list of tokens", "- {name: a, role: viewer, sha256: [s3cret]}\n", []string{"1:35: [0].sha256: found a list; allowed: " + digestText}},
	{"nothing hashed", "- {name: a, role: viewer, sha256: " + sum("") + "}\n", []string{"1:35: [0].sha256: found the SHA-256 of nothing; allowed: that of a token"}},
	{"an empty line hashed", "- {name: a, role: viewer, sha256: " + sum("\n") + "}\n", []string{"1:35: [0].sha256: found the SHA-256 of an empty line; allowed: that of a token"}},
	{"no credentials", "- {name: a, role: viewer}\n", []string{"1:3: [0]: found neither sha256 nor certificate; allowed: one of them: the SHA-256 of a token, or a name in a client's certificate"}},
	{"both credentials", "- {name: a, role: viewer, sha256: " + sum("t") + ", certificate: c}\n", []string{"1:101: [0].certificate: found sha256 beside certificate; allowed: one of them in an item"}},
	{"no name, no role", "- {sha256: " + sum("t") + "}\n", []string{
		"1:3: [0]: found no name; allowed: name: NAME, in every item",
		"1:3: [0]: found no role; allowed: role: one of " + roles,
	}},
	{"another role", "- {name: a, role: operater, certificate: c}\n", []string{`1:19: [0].role: found the text "operater" (operator?); allowed: ` + roles}},
	{"another key", "- {name: a, role: viewer, certificate: c, token: s3cret}\n", []string{`1:43: [0]: found an unknown key "token" in ` + memberIs + "; allowed: " + itemKeys}},
	{"a token twice", "- {name: a, role: viewer, sha256: " + sum("t") + "}\n- {name: b, role: viewer, sha256: " + sum("t") + "}\n", []string{
		"2:35: [1].sha256: found the token of line 1 again; allowed: each token once",
	}},
	{"a kind of certificate twice", "- {name: a, role: viewer, certificate: \"ip:::1\"}\n- {name: b, role: viewer, certificate: \"ip:0:0::1\"}\n", []string{
		"2:40: [1].certificate: found the certificate of line 1 again; allowed: each once",
	}},
	{"an unknown kind", "- {name: a, role: viewer, certificate: \"cn:op.corp\"}\n", []string{`1:40: [0].certificate: found the kind "cn"; allowed: ` + kinds}},
	{"a kind alone", "- {name: a, role: viewer, certificate: \"dns:\"}\n", []string{`1:40: [0].certificate: found "dns:", which is no DNS name; allowed: dns:NAME, as dns:op.corp`}},
	{"an address as a DNS name", "- {name: a, role: viewer, certificate: \"dns:10.0.0.1\"}\n", []string{`1:40: [0].certificate: found "dns:10.0.0.1", which is no DNS name; allowed: dns:NAME, as dns:op.corp`}},
	{"no URI", "- {name: a, role: viewer, certificate: \"uri:op.corp\"}\n", []string{`1:40: [0].certificate: found "uri:op.corp", which is no URI; allowed: uri:URI, as uri:spiffe://corp/op`}},
	{"no address", "- {name: a, role: viewer, certificate: \"ip:op.corp\"}\n", []string{`1:40: [0].certificate: found "ip:op.corp", which is no IP address; allowed: ip:ADDRESS, as ip:10.0.0.1`}},
	{"a name with two roles", "- {name: a, role: viewer, certificate: c}\n- {name: a, role: operator, certificate: d}\n", []string{
		`2:19: [1].role: found another role of "a" than on line 1; allowed: viewer, or another name`,
	}},
}

func TestBadTokensFilesSayWhereAndShowNoToken(t *testing.T) {
	t.Parallel()
	for _, c := range badMembers {
		t.Run(c.name, func(t *testing.T) {
			_, path, err := members(t, c.text)
			if err == nil {
				t.Fatal("it was loaded")
			}
			var want []string
			for _, w := range c.want {
				want = append(want, path+":"+w)
			}
			if got := err.Error(); got != strings.Join(want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error shows the token: %v", err)
			}
		})
	}
}

func TestMembersAreKnownByTokensAndCertificates(t *testing.T) {
	t.Parallel()
	live, _, err := members(t, "- {name: billing, role: operator, sha256: "+sum("t1")+"}\n"+
		"- {name: billing, role: operator, sha256: "+strings.ToUpper(sum("t2"))+"}\n"+
		"- {name: desk, role: support, certificate: Desk.Example.com}\n")
	if err != nil {
		t.Fatal(err)
	}
	gate := access.NewGate(live, true, time.Now)
	for _, c := range []struct {
		name  string
		shown access.Credentials
		want  string
	}{
		{"a token", bearer("t1"), "billing operator"},
		{"the other token", bearer("t2"), "billing operator"},
		{"in another case", authorization("bEARER  t1"), "billing operator"},
		{"another token", bearer("t3"), access.ErrUnknown.Error()},
		{"no token", authorization("Bearer "), access.ErrUnknown.Error()},
		{"a password", authorization("Basic dDE="), access.ErrUnknown.Error()},
		{"two tokens", authorization("Bearer t1", "Bearer t1"), access.ErrUnknown.Error()},
		{"a long token", bearer(strings.Repeat("t", access.MaxToken+1)), access.ErrUnknown.Error()},
		{"nothing", access.Credentials{}, access.ErrNoCredentials.Error()},
		{"a certificate", certificate("uri:spiffe://x", "dns:desk.example.com"), "desk support"},
		{"another certificate", certificate("uri:spiffe://x"), "uri:spiffe://x viewer"},
		{"one without a name", certificate(), "a certificate without a name viewer"},
		{"another token beside a certificate", access.Credentials{Unreadable: true, HasCertificate: true, Names: []string{"dns:desk.example.com"}}, access.ErrUnknown.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := identified(gate, "192.0.2.1", c.shown); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// A name with its kind is that of certificates that have it as this kind alone. One
// without is of any.
func TestCertificatesAreKnownByTheKindsOfTheirNames(t *testing.T) {
	t.Parallel()
	live, _, err := members(t, `
- {name: host, role: operator, certificate: "dns:Op.corp"}
- {name: mail, role: support, certificate: "email:op@corp"}
- {name: workload, role: support, certificate: "uri:spiffe://corp/op"}
- {name: address, role: support, certificate: "ip:2001:DB8::1"}
- {name: any, role: operator, certificate: old.corp}
- {name: any-address, role: operator, certificate: "2001:db8::2"}
- {name: any-uri, role: operator, certificate: "urn:corp:op"}
- {name: any-url, role: operator, certificate: "https://corp/op"}
`)
	if err != nil {
		t.Fatal(err)
	}
	gate := access.NewGate(live, false, time.Now)
	for name, want := range map[string]string{
		"dns:op.corp": "host operator", "email:op.corp": "email:op.corp viewer", "uri:op.corp": "uri:op.corp viewer",
		"uri:dns:op.corp": "uri:dns:op.corp viewer", "email:dns:op.corp": "email:dns:op.corp viewer",
		"email:op@corp": "mail support", "uri:op@corp": "uri:op@corp viewer",
		"uri:spiffe://corp/op": "workload support", "dns:spiffe://corp/op": "dns:spiffe://corp/op viewer",
		"ip:2001:db8::1": "address support", "dns:2001:db8::1": "dns:2001:db8::1 viewer",
		"dns:old.corp": "any operator", "email:old.corp": "any operator",
		"ip:2001:db8::2": "any-address operator", "uri:urn:corp:op": "any-uri operator", "uri:https://corp/op": "any-url operator",
	} {
		if got := identified(gate, "192.0.2.1", certificate(name)); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

func TestTokensFilesAreReadAgain(t *testing.T) {
	t.Parallel()
	live, path, err := members(t, "- {name: a, role: viewer, sha256: "+sum("t1")+"}\n")
	if err != nil {
		t.Fatal(err)
	}
	gate := access.NewGate(live, false, time.Now)
	write := func(text string) error {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return live.Reload()
	}
	if write("- {name: a, role: viewer, sha256: "+sum("t2")) == nil {
		t.Error("a file that is cut off was loaded")
	}
	if got := identified(gate, "192.0.2.1", bearer("t1")); got != "a viewer" {
		t.Errorf("after a bad file: %s", got)
	}
	if err := write("[]\n"); err != nil {
		t.Error(err)
	}
	if got := identified(gate, "192.0.2.2", bearer("t1")); got != access.ErrUnknown.Error() {
		t.Errorf("after an empty list: %s", got)
	}
}

// What takes the place of a tokens file while the daemon runs leaves those in force that
// are known, and never waits: a pipe without a writer would hold up all reloads.
func TestWhatIsNoTokensFileLeavesTheLastOneInForce(t *testing.T) {
	t.Parallel()
	live, path, err := members(t, "- {name: a, role: viewer, sha256: "+sum("t1")+"}\n")
	if err != nil {
		t.Fatal(err)
	}
	gate := access.NewGate(live, true, time.Now)
	for name, put := range map[string]func() error{
		"a pipe":        func() error { return syscall.Mkfifo(path, 0o600) },
		"a folder":      func() error { return os.Mkdir(path, 0o700) },
		"a device":      func() error { return os.Symlink("/dev/zero", path) },
		"a loop":        func() error { return os.Symlink(path, path) },
		"an empty file": func() error { return os.WriteFile(path, nil, 0o600) },
		"nothing":       func() error { return nil },
	} {
		if err := errors.Join(os.Remove(path), put()); err != nil {
			t.Fatal(err)
		}
		if err := live.Reload(); err == nil || strings.Contains(err.Error(), "t1") {
			t.Errorf("%s: it is loaded, or says %v", name, err)
		}
		if got := identified(gate, "192.0.2.1", bearer("t1")); got != "a viewer" {
			t.Errorf("after %s: %s", name, got)
		}
		if got := identified(gate, "127.0.0.1", access.Credentials{}); got != access.ErrNoCredentials.Error() {
			t.Errorf("after %s callers without a token are %s", name, got)
		}
		if name == "nothing" { // for the next one to remove
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// FuzzTokensFile loads anything. What does not load says where and why.
func FuzzTokensFile(f *testing.F) {
	for _, c := range badMembers {
		f.Add([]byte(c.text))
	}
	for _, c := range badCallers {
		f.Add([]byte(c.text))
	}
	f.Add([]byte("- &a {name: n, role: viewer, certificate: c}\n- {<<: *a, certificate: d}\n- *a\n"))
	path := filetest.Write(f, f.TempDir(), "tokens.yaml", "")
	log := slog.New(slog.DiscardHandler)
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		m, c := access.NewLiveMembers(path, log), access.NewLiveCallers(path, log)
		for _, load := range []func() error{m.Reload, c.Reload} {
			err := load()
			var all yamlfile.Errors
			if err == nil {
				continue
			}
			if !errors.As(err, &all) || len(all) == 0 {
				t.Fatalf("%v", err)
			}
			for _, e := range all {
				if e.Line < 1 || e.Column < 1 || e.Found == "" {
					t.Errorf("%+v", e)
				}
			}
		}
		if m.Value() != nil {
			_ = identified(access.NewGate(m, true, time.Now), "::1", bearer("t"))
		}
		if c.Value() != nil {
			shown := bearer("t")
			_ = c.Value().Of(&shown)
		}
	})
}
