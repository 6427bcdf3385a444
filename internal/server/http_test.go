package server_test

import (
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

const bodyX = `{"domain": "api", "descriptors": [{"entries": [{"key": "user", "value": "x"}]}]}`

func TestPostJSON(t *testing.T) {
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
	// Both doors lead to the same counters.
	wantShown(t, d.ask("api", 1, "user=x"), "OVER_LIMIT; OVER_LIMIT u 5/HOUR remaining 0 reset 59m50s; retry-after: 3590")
}

func TestBadBodies(t *testing.T) {
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

func TestPaths(t *testing.T) {
	t.Parallel()
	d := start(t, oneLimit)
	for _, c := range []struct {
		method, port, path string
		code               int
	}{
		{"GET", "http", "/json", 405},
		{"PUT", "http", "/json", 405},
		{"DELETE", "http", "/json", 405},
		{"POST", "http", "/json/", 404},
		{"POST", "http", "/", 404},
		{"GET", "http", "/", 404},
		{"GET", "http", "/rlconfig", 404},
		{"GET", "http", "/debug/pprof/", 404},
		{"GET", "http", "/healthcheck", 200},
		{"POST", "http", "/healthcheck", 405},
		{"GET", "admin", "/", 200},
		{"GET", "admin", "/nothing", 404},
		{"GET", "admin", "/healthz", 200},
		{"POST", "admin", "/rlconfig", 405},
		{"POST", "admin", "/json", 404},
	} {
		if p := d.fetch(c.method, c.port, c.path, nil); p.code != c.code {
			t.Errorf("%s %s of the %s port: %d, want %d", c.method, c.path, c.port, p.code, c.code)
		}
	}
}
