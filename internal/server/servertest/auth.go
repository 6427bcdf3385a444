package servertest

import (
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/forwardauth"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
	"github.com/ratelimitd/ratelimitd/internal/server"
)

// AuthLimits has a rule for each key that tests use, so that each value shows
// in a key of the store.
const AuthLimits = `
domain: d
descriptors:
  - {key: client, rate_limit: {name: c, requests: 3, period: 1h}}
  - {key: user, rate_limit: {name: u, requests: 2, period: 1h}, descriptors: [{key: path, rate_limit: {requests: 9, period: 1h}}]}
  - {key: method, rate_limit: {requests: 9, period: 1h}}
  - {key: path, rate_limit: {requests: 9, period: 1h}}
  - {key: page, rate_limit: {requests: 9, period: 1h}}
  - {key: site, rate_limit: {requests: 9, period: 1h}}
`

// AuthFile is a file for forward auth. It has one endpoint, n, which trusts
// 127.0.0.1 and has a descriptor for each of these entries.
func AuthFile(proxy string, entries ...string) string {
	text := "trusted_proxies: [127.0.0.1, 10.0.0.0/8, 'fd00::/8']\nendpoints:\n- name: n\n  proxy: " + proxy + "\n  domain: d\n  descriptors:\n"
	for _, e := range entries {
		text += "  - entries: [{" + e + "}]\n"
	}
	return text
}

// WithAuth makes a server answer forward auth by a file.
func WithAuth(t testing.TB, text string) func(*server.Options) {
	t.Helper()
	live := forwardauth.NewLive(filetest.Write(t, t.TempDir(), "auth.yaml", text), slog.New(slog.DiscardHandler))
	if err := live.Reload(); err != nil {
		t.Fatal(err)
	}
	return func(o *server.Options) { o.HTTP.Auth = live }
}

// Auth asks forward auth like a proxy at this address, with headers such as
// "X-User: alice".
func (d *Daemon) Auth(from, method, name string, headers ...string) Page {
	d.T.Helper()
	r, err := http.NewRequest(method, "http://"+d.Server.Address("http")+"/auth/"+name, nil)
	if err != nil {
		d.T.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header[name] = append(r.Header[name], value)
	}
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	client := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}, Timeout: Patience}
	p, err := read(client.Do(r))
	if err != nil {
		d.T.Fatal(err)
	}
	return p
}
