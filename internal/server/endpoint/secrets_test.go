package endpoint_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

// Tokens that callers show, good ones and others, are in no trace, log, record, page,
// metric or answer; nor are their digests.
func TestTokensAreToldToNobody(t *testing.T) {
	t.Parallel()
	callers, _, _ := withCallers(t, "- {name: shop, sha256: "+servertest.SumOf("callers-secret")+", domains: ['*'], may: [take, give_back]}\n")
	members, _, _ := servertest.WithMembers(t, "- {name: ops, role: operator, sha256: "+servertest.SumOf("members-secret")+"}\n")
	auth := servertest.WithAuth(t, authOfX)
	f := servertest.NewAssignments(t)
	d := startTraced(t, 1, func(o *tracing.Options, s *server.Options) {
		callers(s)
		members(s)
		servertest.WithAssignments(f)(s)
		auth(s)
		o.Values = true
	})
	var answers strings.Builder
	send := func(method, port, path, header, value, body string) {
		t.Helper()
		r, err := http.NewRequest(method, "http://"+d.Server.Address(port)+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(header, value)
		response, err := d.Client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		_ = response.Write(&answers)
	}
	const subject = `"domain":"api","entries":[{"key":"user","value":"x"}]`
	// The good one is first: guesses would shut it out too.
	for _, token := range []string{"members-secret", "callers-secret", "unknown-secret"} {
		for _, value := range []string{"Bearer " + token, "Basic " + token, token, "Bearer " + token + " " + token} {
			for _, header := range []string{"Authorization", "Ratelimitd-Authorization"} {
				send("POST", "http", "/json", header, value, servertest.BodyX)
				send("POST", "http", "/v1/take", header, value, `{"domain":"api","descriptors":[{"entries":[{"key":"user","value":"x"}]}]}`)
				send("POST", "http", "/auth/n", header, value, "")
				send("GET", "admin", "/rlconfig", header, value, "")
				send("GET", "admin", "/authconfig", header, value, "")
				send("PUT", "admin", "/admin/v1/assignment?domain=api&entry=user=x", header, value, `{"blocked":true,"reason":"`+header+`"}`)
				send("POST", "admin", "/admin/v1/explain", header, value, `{"take":{"domain":"api","descriptors":[{"entries":[{"key":"user","value":"x"}]}]}}`)
				send("POST", "admin", "/admin/v1/reset", header, value, `{`+subject+`}`)
				send("GET", "admin", "/admin/v1/audit", header, value, "")
				send("GET", "admin", "/admin/v1/nothing", header, value, "")
				send("GET", "admin", "/metrics", header, value, "")
			}
			_, err := d.RLS.ShouldRateLimit(servertest.WithToken(t.Context(), strings.TrimPrefix(value, "Bearer ")), servertest.Request("api", 1, "user=x"))
			if err != nil {
				answers.WriteString(err.Error())
			}
		}
	}
	var records strings.Builder
	for _, r := range f.Recorded() {
		records.WriteString(r.By + r.Reason)
	}
	if records.Len() == 0 || d.Log.Lines("admin request refused") == nil {
		t.Error("nothing was changed, or nothing was refused")
	}
	if len(d.spans()) == 0 {
		t.Error("there are no spans")
	}
	for _, token := range []string{"members-secret", "callers-secret", "unknown-secret"} {
		for _, secret := range []string{token, servertest.SumOf(token)} {
			for where, text := range map[string]string{"an answer": answers.String(), "the log": strings.Join(d.Log.Lines(""), "\n"), "a record": records.String()} {
				if i := strings.Index(text, secret); i >= 0 {
					t.Errorf("%s has %s: %s", where, secret, text[max(0, i-200):min(len(text), i+100)])
				}
			}
			if d.collector.Holds(secret) {
				t.Errorf("a span has %s", secret)
			}
		}
	}
}
