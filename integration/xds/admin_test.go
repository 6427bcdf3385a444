package xds_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	xdsv3 "github.com/ratelimitd/ratelimitd/proto/ratelimit/xds/v3"
)

// operator changes assignments of a daemon over HTTP.
type operator struct {
	*daemon
	token string
}

// launchAdministered starts a daemon that follows a server, also without limits, and
// knows an operator's token.
func launchAdministered(t *testing.T, m *management) operator {
	t.Helper()
	const token = "a-token-of-an-operator"
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	entry := fmt.Sprintf("- {name: op, role: operator, sha256: %x}\n", sha256.Sum256([]byte(token)))
	if err := os.WriteFile(tokens, []byte(entry), 0o600); err != nil {
		t.Fatal(err)
	}
	return operator{launch(t, m, "FORCE_START_WITHOUT_INITIAL_CONFIG=true", "--", "--admin-tokens-file="+tokens), token}
}

// want asks for a change, and wants a code and a text in the answer.
func (o operator) want(method, path, body string, code int, text string) {
	o.t.Helper()
	request, err := http.NewRequest(method, o.admin+"/admin/v1"+path, strings.NewReader(body))
	if err != nil {
		o.t.Fatal(err)
	}
	request.Header.Set("authorization", "Bearer "+o.token)
	request.Header.Set("content-type", "application/json")
	r, err := http.DefaultClient.Do(request)
	if err != nil {
		o.t.Fatal(err)
	}
	defer r.Body.Close()
	got, _ := io.ReadAll(r.Body)
	if r.StatusCode != code || !strings.Contains(string(got), text) {
		o.t.Errorf("%s %s: got %d %s, want %d with %q", method, path, r.StatusCode, got, code, text)
	}
}

func (o operator) wantBlock(domain, entry string, code int, text string) {
	o.t.Helper()
	o.want("PUT", "/assignment?strict=true&"+url.Values{"domain": {domain}, "entry": {entry}}.Encode(), `{"blocked":true}`, code, text)
}

func (o operator) wantExplained(domain, text string) {
	o.t.Helper()
	o.want("POST", "/explain", fmt.Sprintf(`{"take":{"domain":%q,"descriptors":[{"entries":[{"key":"user","value":"x"}]}]}}`, domain), 200, text)
}

// Strict changes are judged by the limits that the server has sent, and their hints name
// its resources.
func TestStrictChangesFollowTheServer(t *testing.T) {
	t.Parallel()
	m := manage(t, nil)
	o := launchAdministered(t, m)
	o.wantHealth(200)
	const noLimits = "no limits are loaded yet"
	o.wantBlock("d", "user=x", 503, noLimits)
	o.want("POST", "/reset", `{"domain":"d","entries":[{"key":"user","value":"x"}],"strict":true}`, 503, noLimits)
	// What only ends something waits for no limits.
	o.want("PATCH", "/assignment?domain=d&entry=user=x&remove=terms", `{}`, 200, "UNCHANGED")
	o.want("DELETE", "/assignment?domain=d&entry=user=x", "", 200, "UNCHANGED")

	loaded := func(domains ...*xdsv3.RateLimitConfig) {
		t.Helper()
		n := len(m.answers()) + 1
		m.set(fmt.Sprint(n), domains...)
		asynctest.Eventually(t, "the configuration is in force", func() bool {
			_, page := get(o.admin + "/rlconfig")
			return strings.Contains(page, fmt.Sprintf("# version %d accepted ", n))
		})
	}
	loaded(domain("d", 2), domainOf("none"))
	o.wantBlock("d", "usr=x", 400, "no rule is for descriptors that begin with usr=x: a block denies only requests that send one all the same; "+
		"no descriptor here has the key usr; did you mean user (resource d)?")
	o.wantBlock("d", "user=x", 201, "CREATED")
	o.wantBlock("none", "user=x", 400, "no descriptor here has the key user")
	o.wantExplained("none", `"miss":"MISS_KEY"`)
	o.wantBlock("dd", "user=x", 400, `domain: found \"dd\"; there is none of this name (d?)`)
	o.wantExplained("dd", `"near_domain":"d"`)

	loaded(domainOf("d", &xdsv3.RateLimitDescriptor{Key: "tenant", RateLimit: perUnit(2, hour)}))
	o.wantBlock("d", "user=y", 400, "no descriptor here has the key user")
	o.wantBlock("d", "tenant=y", 201, "CREATED")

	loaded()
	o.wantBlock("d", "tenant=z", 400, `domain: found \"d\"; the limits in force have no domain at all`)
	o.wantExplained("d", `"domain_known":false`)
	o.want("DELETE", "/assignment?domain=d&entry=user=x", "", 200, "DELETED")
}
