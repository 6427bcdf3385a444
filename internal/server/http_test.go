package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

const bodyX = `{"domain": "api", "descriptors": [{"entries": [{"key": "user", "value": "x"}]}]}`

func TestPostedJSONIsDecided(t *testing.T) {
	t.Parallel()
	d := start(t, oneLimit)
	for _, c := range []struct {
		name, body string
		code       int
		want       string // the response as show writes it
		retry      string
	}{
		{"allowed", bodyX, 200, "OK; OK u 5/HOUR remaining 4 reset 59m50s", ""},
		{"proto names and a cost", `{"domain":"api","hits_addend":4,"descriptors":[{"entries":[{"key":"user","value":"x"}]}]}`,
			200, "OK; OK u 5/HOUR remaining 0 reset 59m50s", ""},
		{"denied", bodyX, 429, "OVER_LIMIT; OVER_LIMIT u 5/HOUR remaining 0 reset 59m50s; retry-after: 3590", "3590"},
		{"over the capacity", `{"domain":"api","hitsAddend":6,"descriptors":[{"entries":[{"key":"user","value":"y"}]}]}`,
			429, "OVER_LIMIT; OVER_LIMIT u 5/HOUR remaining 5 reset 0s", ""},
		{"unknown domain", `{"domain":"other","descriptors":[{}]}`, 200, "OK; OK remaining 0", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := d.post(c.body)
			if p.code != c.code || p.header.Get("Retry-After") != c.retry || p.header.Get("Content-Type") != "application/json" {
				t.Errorf("got %d %v", p.code, p.header)
			}
			var r rlsv3.RateLimitResponse
			if err := protojson.Unmarshal([]byte(p.body), &r); err != nil {
				t.Fatalf("%v in %s", err, p.body)
			}
			wantShown(t, &r, c.want)
		})
	}
	// gRPC and HTTP have the same counters.
	wantShown(t, d.ask("api", 1, "user=x"), "OVER_LIMIT; OVER_LIMIT u 5/HOUR remaining 0 reset 59m50s; retry-after: 3590")
}

func TestBadBodiesAreRefused(t *testing.T) {
	t.Parallel()
	d := start(t, oneLimit)
	for _, c := range []struct{ name, body string }{
		{"empty", ""},
		{"no JSON", "domain=api"},
		{"another type", "[]"},
		{"null", "null"},
		{"cut short", bodyX[:30]},
		{"two values", bodyX + bodyX},
		{"an unknown field", `{"domain":"api","descriptor":[]}`},
		{"an unknown field further in", `{"domain":"api","descriptors":[{"entries":[{"key":"user","value":"x","weight":1}]}]}`},
		{"a field twice", `{"domain":"api","domain":"api","descriptors":[{}]}`},
		{"a negative cost", `{"domain":"api","hitsAddend":-1,"descriptors":[{}]}`},
		{"a cost over 32 bits", `{"domain":"api","hitsAddend":4294967296,"descriptors":[{}]}`},
		{"a number for a text", `{"domain":"api","descriptors":[{"entries":[{"key":"user","value":15}]}]}`},
		{"no UTF-8", "{\"domain\":\"api\xff\",\"descriptors\":[{}]}"},
		{"nested without end", strings.Repeat(`{"descriptors":[`, 20000)},
		{"arrays without end", `{"x":` + strings.Repeat("[", 100000)},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := d.post(c.body)
			if p.code != 400 || !strings.HasPrefix(p.body, `{"error":"the body is no RateLimitRequest in protobuf JSON:`) {
				t.Errorf("got %d %s", p.code, p.body)
			}
		})
	}
	if p := d.post(strings.Repeat(" ", 1<<20) + bodyX); p.code != 400 || !strings.Contains(p.body, "the body is larger than") {
		t.Errorf("oversized: got %d %s", p.code, p.body)
	}
	if p := d.post(bodyX); p.code != 200 {
		t.Errorf("and then: %d %s", p.code, p.body)
	}
}

func TestPortsServeTheirPathsAlone(t *testing.T) {
	t.Parallel()
	d := start(t, oneLimit)
	for _, c := range []struct {
		method, port, path string
		code               int
		allow              string
	}{
		{"GET", "http", "/json", 405, "POST"},
		{"PUT", "http", "/json", 405, "POST"},
		{"DELETE", "http", "/json", 405, "POST"},
		{"OPTIONS", "http", "/json", 405, "POST"},
		{"HEAD", "http", "/json", 405, "POST"},
		{"GET", "http", "/v1/take", 405, "POST"},
		{"PATCH", "http", "/v1/give-back", 405, "POST"},
		{"POST", "http", "/openapi.yaml", 405, "GET, HEAD"},
		{"POST", "http", "/json/", 404, ""},
		{"POST", "http", "/", 404, ""},
		{"GET", "http", "/", 404, ""},
		{"HEAD", "http", "/nothing", 404, ""},
		{"GET", "http", "/rlconfig", 404, ""},
		{"GET", "http", "/debug/pprof/", 404, ""},
		{"GET", "http", "/" + strings.Repeat("x", 10_000), 404, ""},
		{"GET", "http", "/%00%22%ff", 404, ""},
		{"GET", "http", "/healthcheck", 200, ""},
		{"HEAD", "http", "/healthcheck", 200, ""},
		{"GET", "http", "//healthcheck", 200, ""}, // the client is redirected to the clean path
		{"POST", "http", "/healthcheck", 405, "GET, HEAD"},
		{"GET", "admin", "/", 200, ""},
		{"GET", "admin", "/nothing", 404, ""},
		{"GET", "admin", "/healthz", 200, ""},
		{"POST", "admin", "/rlconfig", 405, "GET, HEAD"},
		{"POST", "admin", "/json", 404, ""},
	} {
		t.Run(fmt.Sprintf("%s %.100s of the %s port", c.method, c.path, c.port), func(t *testing.T) {
			p := d.fetch(c.method, c.port, c.path, nil)
			if p.code != c.code || p.header.Get("Allow") != c.allow {
				t.Errorf("got %d, allowed %q; want %d, %q", p.code, p.header.Get("Allow"), c.code, c.allow)
			}
			if c.port == "admin" || c.code == 200 {
				return
			}
			// All errors of that port are JSON.
			if p.header.Get("Content-Type") != "application/json" {
				t.Errorf("got %v", p.header)
			}
			if c.method == "HEAD" {
				return
			}
			var told map[string]string
			if err := json.Unmarshal([]byte(p.body), &told); err != nil || len(told) != 1 || told["error"] == "" || len(p.body) > 300 {
				t.Errorf("got %v in %.400s", err, p.body)
			}
			if !strings.Contains(told["error"], c.allow) {
				t.Errorf("%q does not say what is allowed", told["error"])
			}
		})
	}
}

// The answer prints false and 0, and leaves out unset values.
func TestAnswersPrintZeros(t *testing.T) {
	t.Parallel()
	d := start(t, takeLimits)
	type answer struct {
		Allowed, Degraded *bool
		DeniedBy          *int
		Limits            []map[string]any
	}
	var denied answer
	takeAll := `{"domain": "api", "descriptors": [{"entries": [{"key": "gcra", "value": "x"}], "cost": 4}]}`
	for range 2 {
		p := d.fetch("POST", "http", "/v1/take", strings.NewReader(takeAll))
		denied = answer{}
		if err := json.Unmarshal([]byte(p.body), &denied); err != nil {
			t.Fatal(err)
		}
		if allowed := p.code == 200; allowed != (denied.DeniedBy == nil) || strings.Contains(p.body, "null") {
			t.Errorf("%d %s", p.code, p.body)
		}
	}
	if denied.Allowed == nil || *denied.Allowed || denied.Degraded == nil || denied.DeniedBy == nil || len(denied.Limits) != 1 {
		t.Fatalf("%+v", denied)
	}
	limit := denied.Limits[0]
	for name, want := range map[string]any{"allowed": false, "remaining": 0.0, "descriptorIndex": 0.0, "shadow": false, "takenAt": "0", "takenBy": "0"} {
		if got, ok := limit[name]; !ok || got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if _, ok := limit["wait"]; ok || limit["retryAfter"] == nil {
		t.Errorf("%v", limit)
	}
	if p := d.fetch("POST", "http", "/v1/take", strings.NewReader(`{"domain": "api", "descriptors": [{}]}`)); !strings.Contains(strings.ReplaceAll(p.body, " ", ""), `"limits":[]`) {
		t.Errorf("without a limit: %s", p.body)
	}
	var over struct {
		OverallCode string
		Statuses    []map[string]any
	}
	p := d.post(`{"domain": "api", "descriptors": [{"entries": [{"key": "shadow", "value": "x"}]}]}`)
	if err := json.Unmarshal([]byte(p.body), &over); err != nil || len(over.Statuses) != 1 || strings.Contains(p.body, "null") {
		t.Fatalf("%v in %s", err, p.body)
	}
	if got, ok := over.Statuses[0]["limitRemaining"]; !ok || got != 0.0 {
		t.Errorf("%s", p.body)
	}
}
