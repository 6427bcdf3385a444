package server_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/forwardauth"
	"github.com/ratelimitd/ratelimitd/internal/server"
)

// authLimits has a rule for each key that tests use, so that each value shows
// in a key of the store.
const authLimits = `
domain: d
descriptors:
  - {key: client, rate_limit: {name: c, requests: 3, period: 1h}}
  - {key: user, rate_limit: {name: u, requests: 2, period: 1h}, descriptors: [{key: path, rate_limit: {requests: 9, period: 1h}}]}
  - {key: method, rate_limit: {requests: 9, period: 1h}}
  - {key: path, rate_limit: {requests: 9, period: 1h}}
  - {key: page, rate_limit: {requests: 9, period: 1h}}
  - {key: site, rate_limit: {requests: 9, period: 1h}}
`

// authFile is a file for forward auth. It has one endpoint, n, which trusts
// 127.0.0.1 and has a descriptor for each of these entries.
func authFile(proxy string, entries ...string) string {
	text := "trusted_proxies: [127.0.0.1, 10.0.0.0/8, 'fd00::/8']\nendpoints:\n- name: n\n  proxy: " + proxy + "\n  domain: d\n  descriptors:\n"
	for _, e := range entries {
		text += "  - entries: [{" + e + "}]\n"
	}
	return text
}

// withAuth makes a server answer forward auth by a file.
func withAuth(t testing.TB, text string) func(*server.Options) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "auth.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	live := forwardauth.NewLive(path, slog.New(slog.DiscardHandler))
	if err := live.Reload(); err != nil {
		t.Fatal(err)
	}
	return func(o *server.Options) { o.HTTP.Auth = live }
}

// keys is a store that allows everything and notes the keys that it is asked
// for.
type keys struct {
	fakeStore
	mu    sync.Mutex
	asked []string
}

func newKeys() *keys {
	k := new(keys)
	k.take = func(_ context.Context, hits []bucket.Hit, _ []bucket.Decision) error {
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, h := range hits {
			subject, _, _ := strings.Cut(string(h.Key), "#")
			if h.Cost != 1 {
				subject += fmt.Sprintf(" cost %d", h.Cost)
			}
			k.asked = append(k.asked, strings.TrimPrefix(subject, "d|"))
		}
		return nil
	}
	return k
}

func (k *keys) last() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	asked := strings.Join(k.asked, " ")
	k.asked = nil
	return asked
}

// auth asks like a proxy at this address. Headers are "name: value".
func (d *daemon) auth(from, method, name string, headers ...string) page {
	d.t.Helper()
	r, err := http.NewRequest(method, "http://"+d.srv.Address("http")+"/auth/"+name, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header[name] = append(r.Header[name], value)
	}
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	client := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}, Timeout: patience}
	response, err := client.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return page{response.StatusCode, string(body), response.Header}
}
