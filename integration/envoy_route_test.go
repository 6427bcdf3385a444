package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

// routeLimits has limits of ten, one of them for charges afterwards, and one as
// Envoy Gateway makes it for tokens.
const routeLimits = `
domain: envoy
algorithm: sliding_log
descriptors:
  - key: user
    rate_limit: {requests: 10, period: 1d}
  - key: used
    rate_limit: {requests: 10, period: 1d, postpaid: true}
  - key: tokens
    rate_limit: {algorithm: fixed_window, requests_per_unit: 21, unit: day}
`

// perRoute is a route of one path with limits in the filter's own place.
func perRoute(path, limits string) string {
	return fmt.Sprintf(`
- match: {path: %s}
  route: {cluster: backend}
  typed_per_filter_config:
    envoy.filters.http.ratelimit:
      "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
      rate_limits:
%s
`, path, indent(8, limits))
}

// userAction asks about the user in a header, under a key.
func userAction(key string) string {
	return fmt.Sprintf("- actions: [{request_headers: {header_name: x-user, descriptor_key: %s}}]\n", key)
}

// costRoutes charge by hits_addend, before and after a request.
var costRoutes = strings.Join([]string{
	perRoute("/number", userAction("user")+"  hits_addend: {number: 4}"),
	perRoute("/done", userAction("user")+"  apply_on_stream_done: true"),
	perRoute("/refund", userAction("user")+"  hits_addend: {number: 5}\n"+
		userAction("user")+"  hits_addend: {format: \"%RESP(x-tokens)%\", is_negative_hits: true}\n  apply_on_stream_done: true"),
	perRoute("/refund-fixed", userAction("user")+
		userAction("user")+"  hits_addend: {number: 1, is_negative_hits: true}\n  apply_on_stream_done: true"),
	perRoute("/used", userAction("used")+"  hits_addend: {number: 0}\n"+
		userAction("used")+"  hits_addend: {format: \"%RESP(x-tokens)%\"}\n  apply_on_stream_done: true"),
	perRoute("/tokens", userAction("tokens")+"  hits_addend: {number: 0}\n"+
		userAction("tokens")+"  hits_addend: {format: \"%RESP(x-tokens)%\"}\n  apply_on_stream_done: true"),
}, "")

// remaining returns the rest of a limit. It asks for nothing.
func (d *daemon) remaining(entry string) int {
	d.t.Helper()
	r := request("envoy", 0, entry)
	r.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
	response, err := d.client.ShouldRateLimit(d.t.Context(), r)
	if err != nil {
		d.t.Fatal(err)
	}
	return int(response.GetStatuses()[0].GetLimitRemaining())
}

// A request has a cost, and charges or refunds when it is done.
func TestEnvoyChargesHitsAddend(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	dir := t.TempDir()
	write(t, dir, "envoy.yaml", routeLimits)
	d := start(t, "--limits-path", dir)
	b := startBackend(t)
	e := startEnvoy(t, configure(t, []front{{Name: "costs", Filter: patiently, Routes: costRoutes}}, ratelimitdAt(d.grpc), b.cluster()))
	left := func(t *testing.T, entry string, want int) {
		t.Helper()
		if got := d.remaining(entry); got != want {
			t.Errorf("%s has %d left, want %d", entry, got, want)
		}
	}

	t.Run("number", func(t *testing.T) {
		if got := e.statuses(3, "costs", "/number", "x-user: number"); !slices.Equal(got, []int{200, 200, 429}) {
			t.Errorf("requests that cost 4 of 10 give %v", got)
		}
		left(t, "user=number", 2)
	})
	t.Run("charge when done", func(t *testing.T) {
		if got := e.get("costs", "/done", "x-user: done").status; got != 200 {
			t.Errorf("a request gives %d", got)
		}
		asynctest.Eventually(t, "it is charged", func() bool { return d.remaining("user=done") == 9 })
	})
	t.Run("refund when done", func(t *testing.T) {
		// The request takes five, and the number of the backend is given back.
		for _, want := range []int{8, 6} {
			if got := e.get("costs", "/refund", "x-user: refund", "x-answer-tokens: 3").status; got != 200 {
				t.Errorf("a request gives %d", got)
			}
			asynctest.Eventually(t, "it is given back", func() bool { return d.remaining("user=refund") == want })
		}
	})
	t.Run("no refund of what was denied", func(t *testing.T) {
		d.ask("envoy", 10, "user=full")
		if got := e.get("costs", "/refund", "x-user: full", "x-answer-tokens: 3").status; got != 429 {
			t.Errorf("with nothing left a request gives %d", got)
		}
		e.get("costs", "/done", "x-user: later")
		asynctest.Eventually(t, "a later one is charged", func() bool { return d.remaining("user=later") == 9 })
		left(t, "user=full", 0)
	})
	t.Run("a fixed number is for denied requests too", func(t *testing.T) {
		d.ask("envoy", 10, "user=fixed")
		if got := e.get("costs", "/refund-fixed", "x-user: fixed").status; got != 429 {
			t.Errorf("with nothing left a request gives %d", got)
		}
		asynctest.Eventually(t, "Envoy gives back what it did not get", func() bool { return d.remaining("user=fixed") == 1 })
	})
	t.Run("tokens", func(t *testing.T) {
		ask := func() int { return e.get("costs", "/tokens", "x-user: tokens", "x-answer-tokens: 10").status }
		for i, want := range []int{11, 1, 0} { // the third exceeds the limit
			if got := ask(); got != 200 {
				t.Errorf("request %d gives %d", i+1, got)
			}
			asynctest.Eventually(t, "its use is charged", func() bool { return d.remaining("tokens=tokens") == want })
		}
		if got := ask(); got != 429 {
			t.Errorf("with more used than the limit a request gives %d", got)
		}
	})
	t.Run("postpaid", func(t *testing.T) {
		ask := func() int { return e.get("costs", "/used", "x-user: used", "x-answer-tokens: 8").status }
		for i, want := range []int{2, 0} { // the second exceeds the limit
			if got := ask(); got != 200 {
				t.Errorf("request %d gives %d", i+1, got)
			}
			asynctest.Eventually(t, "its use is charged", func() bool { return d.remaining("used=used") == want })
		}
		if got := ask(); got != 429 {
			t.Errorf("with nothing left a request gives %d", got)
		}
		if n := b.served("/used"); n != 2 {
			t.Errorf("%d requests have reached the backend, want 2", n)
		}
	})
}

// contractAction takes the numbers of the limit from the metadata of earlier
// filters.
var contractAction = userAction("user") + "  limit: {dynamic_metadata: {metadata_key: {key: contract, path: [{key: limit}]}}}"

// overrideRoutes has it on a route and in the filter's own place.
var overrideRoutes = perRoute("/per-route", contractAction) + `
- match: {path: /route}
  route:
    cluster: backend
    rate_limits:
` + indent(6, contractAction)

// contract gives all callers a contract of three a day.
const contract = `
- name: envoy.filters.http.set_metadata
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config
    metadata:
      - metadata_namespace: contract
        value: {limit: {requests_per_unit: 3, unit: DAY}}
`

func TestEnvoySendsLimitsOfItsOwn(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	dir := t.TempDir()
	write(t, dir, "envoy.yaml", routeLimits)
	d := start(t, "--limits-path", dir)
	b := startBackend(t)
	e := startEnvoy(t, configure(t, []front{
		{Name: "contract", Filter: patiently, Before: contract, Routes: overrideRoutes},
		{Name: "none", Filter: patiently, Routes: overrideRoutes},
	}, ratelimitdAt(d.grpc), b.cluster()))
	for _, path := range []string{"/route", "/per-route"} {
		t.Run(path, func(t *testing.T) {
			if got := e.statuses(4, "contract", path, "x-user: alice"+path); !slices.Equal(got, []int{200, 200, 200, 429}) {
				t.Errorf("a contract of 3 a day gives %v", got)
			}
			if got := e.statuses(11, "none", path, "x-user: bob"+path); slices.Index(got, 429) != 10 {
				t.Errorf("without one the limit of 10 gives %v", got)
			}
		})
	}
}
