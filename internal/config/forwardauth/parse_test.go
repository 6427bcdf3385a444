package forwardauth_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/config/forwardauth"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
	"github.com/ratelimitd/ratelimitd/internal/network"
)

const goodAuth = `
trusted_proxies: [127.0.0.1, 10.0.0.0/8, "fd00::/8", "::1"]
endpoints:
  - name: shop
    proxy: nginx
    domain: shop
    on_missing: omit
    descriptors:
      - entries:
          - {key: client, from: client_address, on_missing: empty, ipv4_prefix: 24, ipv6_prefix: 64}
          - {key: path, from: path, prefixes: [/, /api, /api/v1, /login]}
        cost: 5
      - entries:
          - {key: user, from: header, name: X-User}
          - {key: page, from: query, name: a b, on_missing: deny}
          - {key: site, value: 15}
  - name: a.b~c-D_9
    proxy: traefik
    denied_status: 420
    domain: d
    descriptors: [{entries: [{key: method, from: method}], cost: 0}]
  - {name: c, proxy: caddy, domain: d, descriptors: [{entries: [{key: site, value: ""}]}]}
`

func loadAuth(t testing.TB, text string) (*forwardauth.File, error) {
	t.Helper()
	return forwardauth.Load(filetest.Write(t, t.TempDir(), "auth.yaml", text))
}

func TestAFileIsReadInFull(t *testing.T) {
	t.Parallel()
	a, err := loadAuth(t, goodAuth)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(a.TrustedProxies); got != "[127.0.0.1/32 10.0.0.0/8 fd00::/8 ::1/128]" {
		t.Errorf("trusted proxies %s", got)
	}
	shop := a.Endpoint("shop")
	if shop == nil || a.Endpoint("") != nil || a.Endpoint("Shop") != nil || len(a.Endpoints) != 3 {
		t.Fatalf("endpoints %v", a.Endpoints)
	}
	if shop.Domain != "shop" || shop.DeniedStatus != 403 || shop.URIHeader != "X-Original-URI" || shop.MethodHeader != "X-Original-Method" || shop.Line != 4 {
		t.Errorf("shop is %+v", shop)
	}
	want := []forwardauth.Descriptor{
		{Cost: 5, Entries: []forwardauth.Entry{
			{Key: "client", From: forwardauth.FromClientAddress, Network: network.Lengths{IPv4: 24, IPv6: 64}, OnMissing: forwardauth.MissingEmpty},
			{Key: "path", From: forwardauth.FromPath, Prefixes: []string{"/api/v1", "/login", "/api", "/"}, OnMissing: forwardauth.MissingOmit},
		}},
		{Cost: 1, Entries: []forwardauth.Entry{
			{Key: "user", From: forwardauth.FromHeader, Name: "X-User", OnMissing: forwardauth.MissingOmit},
			{Key: "page", From: forwardauth.FromQuery, Name: "a b", OnMissing: forwardauth.MissingDeny},
			{Key: "site", Value: "15"},
		}},
	}
	if !reflect.DeepEqual(shop.Descriptors, want) {
		t.Errorf("descriptors\n got %+v\nwant %+v", shop.Descriptors, want)
	}
	other, third := a.Endpoint("a.b~c-D_9"), a.Endpoint("c")
	if other.DeniedStatus != 420 || other.URIHeader != "X-Forwarded-Uri" || other.MethodHeader != "X-Forwarded-Method" || other.Descriptors[0].Cost != 0 {
		t.Errorf("the second is %+v", other)
	}
	if third.DeniedStatus != 429 || third.URIHeader != "X-Forwarded-Uri" || third.MethodHeader != "X-Forwarded-Method" {
		t.Errorf("the third is %+v", third)
	}
}

func TestTrustsAddressesOfTrustedProxies(t *testing.T) {
	t.Parallel()
	a, err := loadAuth(t, goodAuth)
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]bool{
		"127.0.0.1": true, "127.0.0.2": false, "10.0.0.0": true, "10.255.255.255": true, "11.0.0.0": false,
		"fd12::1": true, "fc00::1": false, "::1": true, "::2": false, "::ffff:10.0.0.1": false,
	} {
		t.Run(address, func(t *testing.T) {
			if got := a.Trusts(netip.MustParseAddr(address)); got != want {
				t.Errorf("%s is trusted: %t", address, got)
			}
		})
	}
	if a.Trusts(netip.Addr{}) {
		t.Error("no address is trusted")
	}
}

func TestFilesThatCannotBeReadAreErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := forwardauth.Load(dir + "/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := forwardauth.Load(dir); err == nil || err.Error() != "forward auth: "+dir+" is no file" {
		t.Errorf("a folder: %v", err)
	}
}

// What is in force changes with the file, and not with one that has errors.
func TestWatchLoadsAFileThatChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filetest.Write(t, dir, "auth.yaml", strings.ReplaceAll(goodAuth, "name: shop", "name: one"))
		log := new(asynctest.Buffer)
		l := forwardauth.NewLive(path, slog.New(slog.NewTextHandler(log, nil)))
		if l.Value() != nil {
			t.Error("there are endpoints before the first load")
		}
		ctx, cancel := context.WithCancel(context.Background())
		var watch sync.WaitGroup
		watch.Go(func() { l.Watch(ctx) })
		defer watch.Wait()
		defer cancel()
		has := func(name string) func() bool {
			return func() bool { return l.Value() != nil && l.Value().Endpoint(name) != nil }
		}
		asynctest.Eventually(t, "the first endpoints", has("one"))

		filetest.Write(t, dir, "auth.yaml", strings.ReplaceAll(goodAuth, "name: shop", "name: two"))
		asynctest.Eventually(t, "new endpoints, and then their status", func() bool { return has("two")() && l.Status().Generation == 2 })
		if has("one")() {
			t.Errorf("the old endpoint is there; %+v", l.Status())
		}

		// A good endpoint beside a bad one is not taken.
		filetest.Write(t, dir, "auth.yaml", strings.ReplaceAll(goodAuth, "name: shop", "name: three")+"  - {}\n")
		asynctest.Eventually(t, "an error", func() bool { return l.Status().LastError != nil })
		if !has("two")() || has("three")() || l.Status().Failed != 1 {
			t.Errorf("not the last good endpoints; %+v", l.Status())
		}
		if n := log.Count(`"forward auth endpoints not loaded, the last good ones stay in force"`); n != 1 {
			t.Errorf("the failure was logged %d times", n)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		asynctest.Eventually(t, "the file is gone", func() bool { return errors.Is(l.Status().LastError, os.ErrNotExist) })

		filetest.Write(t, dir, "auth.yaml", strings.ReplaceAll(goodAuth, "name: shop", "name: four"))
		asynctest.Eventually(t, "mended", has("four"))
		if s := l.Status(); s.LastError != nil || s.Generation != 3 {
			t.Errorf("status %+v", s)
		}
	})
}

func TestTableAndWarnings(t *testing.T) {
	t.Parallel()
	path := filetest.Write(t, t.TempDir(), "auth.yaml", goodAuth)
	a, err := forwardauth.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	warnings := a.Warnings(func(name string) bool { return name == "d" })
	if len(warnings) != 1 || warnings[0].String() != path+`:6:13: endpoints[0].domain: no limits have the domain "shop", so nothing is limited` {
		t.Errorf("warnings %v", warnings)
	}
	var out bytes.Buffer
	if err := a.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"/auth/shop for nginx domain shop client / path, user / page / site denied with 403",
		"/auth/a.b~c-D_9 for traefik domain d method denied with 420",
		"/auth/c for caddy domain d site denied with 429",
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("table\n%s", out.String())
	}
}

func FuzzAuthFile(f *testing.F) {
	f.Add([]byte(goodAuth))
	for _, c := range badAuths {
		f.Add([]byte(c.text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filetest.Write(t, t.TempDir(), "auth.yaml", string(data))
		a, err := forwardauth.Load(path)
		if err != nil {
			var errs yamlfile.Errors
			if !errors.As(err, &errs) || len(errs) == 0 {
				t.Fatalf("error %v", err)
			}
			return
		}
		for _, e := range a.Endpoints {
			if a.Endpoint(e.Name) != e || e.DeniedStatus < 400 || e.DeniedStatus > 499 || len(e.Descriptors) == 0 {
				t.Errorf("endpoint %+v", e)
			}
			for _, d := range e.Descriptors {
				for _, entry := range d.Entries {
					if entry.Key == "" || entry.From == forwardauth.FromConstant && entry.OnMissing != forwardauth.MissingEmpty {
						t.Errorf("entry %+v", entry)
					}
				}
			}
		}
	})
}
