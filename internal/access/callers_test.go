package access_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

const goodCallers = `
- {name: shop, sha256: SHOP, domains: [api, web], may: [take, give_back]}
- {name: proxy, certificate: "spiffe://corp/envoy", domains: ["*"]}
- {name: desk, certificate: desk.corp, domains: [api], may: [refund]}
`

func callers(t testing.TB, text string) (*access.Callers, string, error) {
	t.Helper()
	path := filetest.Write(t, t.TempDir(), "callers.yaml", text)
	live := access.NewLiveCallers(path, slog.New(slog.DiscardHandler))
	err := live.Reload()
	return live.Value(), path, err
}

var badCallers = []struct {
	name, text string
	want       []string
}{
	{"no domains", "- {name: a, certificate: c}\n", []string{`1:3: [0]: found no domains; allowed: domains: [NAME, ...], or ["*"] for all`}},
	{"empty lists", "- {name: a, certificate: c, domains: [], may: []}\n", []string{
		"1:38: [0].domains: found 0 items; allowed: 1 to 10000", "1:47: [0].may: found 0 items; allowed: 1 to 10000",
	}},
	{"another right", "- {name: a, certificate: c, domains: [d], may: [give-back]}\n", []string{
		`1:49: [0].may[0]: found the text "give-back" (give_back?); allowed: take, give_back, refund, numbers`,
	}},
	{"a slash in a name", "- {name: a/b, certificate: c, domains: [d]}\n", []string{
		"1:10: [0].name: found a slash; allowed: a name without one, which separates it from those of holders",
	}},
	{"a role", "- {name: a, certificate: c, domains: [d], role: viewer}\n", []string{
		`1:43: [0]: found an unknown key "role" in a caller; allowed: name, sha256, certificate, domains, may`,
	}},
}

func TestBadCallersFiles(t *testing.T) {
	t.Parallel()
	for _, c := range badCallers {
		t.Run(c.name, func(t *testing.T) {
			_, path, err := callers(t, c.text)
			if err == nil {
				t.Fatal("it was loaded")
			}
			if got, want := err.Error(), path+":"+strings.Join(c.want, "\n"+path+":"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestCallersHaveDomainsAndRights(t *testing.T) {
	t.Parallel()
	all, _, err := callers(t, strings.Replace(goodCallers, "SHOP", sum("t"), 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		shown  access.Credentials
		domain string
		right  access.Right
		want   string
	}{
		{"a take", bearer("t"), "web", access.Take, "shop may"},
		{"a give-back", bearer("t"), "api", access.GiveBack, "shop may"},
		{"a refund", bearer("t"), "api", access.Take | access.Refund, "shop may not"},
		{"another domain", bearer("t"), "other", access.Take, "shop may not"},
		{"any domain", certificate("uri:spiffe://corp/envoy"), "other", access.Take, "proxy may"},
		{"takes alone, unless it says more", certificate("uri:spiffe://corp/envoy"), "other", access.GiveBack, "proxy may not"},
		{"no take", certificate("dns:desk.corp"), "api", access.Take, "desk may not"},
		{"nothing", access.Credentials{}, "api", access.Take, "no caller"},
		{"another token", bearer("u"), "api", access.Take, "no caller"},
		{"another token beside a certificate", access.Credentials{HasToken: true, HasCertificate: true, Names: []string{"dns:desk.corp"}}, "api", access.Refund, "no caller"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := "no caller"
			if caller := all.Of(&c.shown); caller != nil {
				got = caller.Name + " may not"
				if caller.MayAsk(c.domain) && caller.May(c.right) {
					got = caller.Name + " may"
				}
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
