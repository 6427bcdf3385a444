package envoyrls_test

import (
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

func TestPostedJSONIsDecided(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit)
	for _, c := range []struct {
		name, body string
		code       int
		want       string // the response as show writes it
		retry      string
	}{
		{"allowed", servertest.BodyX, 200, "OK; OK u 5/HOUR remaining 4 reset 59m50s", ""},
		{"proto names and a cost", `{"domain":"api","hits_addend":4,"descriptors":[{"entries":[{"key":"user","value":"x"}]}]}`,
			200, "OK; OK u 5/HOUR remaining 0 reset 59m50s", ""},
		{"denied", servertest.BodyX, 429, "OVER_LIMIT; OVER_LIMIT u 5/HOUR remaining 0 reset 59m50s; retry-after: 3590", "3590"},
		{"over the capacity", `{"domain":"api","hitsAddend":6,"descriptors":[{"entries":[{"key":"user","value":"y"}]}]}`,
			429, "OVER_LIMIT; OVER_LIMIT u 5/HOUR remaining 5 reset 0s", ""},
		{"unknown domain", `{"domain":"other","descriptors":[{}]}`, 200, "OK; OK remaining 0", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := d.Post(c.body)
			if p.Code != c.code || p.Header.Get("Retry-After") != c.retry || p.Header.Get("Content-Type") != "application/json" {
				t.Errorf("got %d %v", p.Code, p.Header)
			}
			var r rlsv3.RateLimitResponse
			if err := protojson.Unmarshal([]byte(p.Body), &r); err != nil {
				t.Fatalf("%v in %s", err, p.Body)
			}
			servertest.WantShown(t, &r, c.want)
		})
	}
	// gRPC and HTTP have the same counters.
	servertest.WantShown(t, d.Ask("api", 1, "user=x"), "OVER_LIMIT; OVER_LIMIT u 5/HOUR remaining 0 reset 59m50s; retry-after: 3590")
}

func TestBadBodiesAreRefused(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit)
	for _, c := range []struct{ name, body string }{
		{"empty", ""},
		{"no JSON", "domain=api"},
		{"another type", "[]"},
		{"null", "null"},
		{"cut short", servertest.BodyX[:30]},
		{"two values", servertest.BodyX + servertest.BodyX},
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
			p := d.Post(c.body)
			isNoRequest := strings.HasPrefix(p.Body, `{"error":"the body is no RateLimitRequest in protobuf JSON:`)
			if isTooDeep := strings.Contains(p.Body, "it is nested deeper than any message is"); p.Code != 400 || !isNoRequest && !isTooDeep {
				t.Errorf("got %d %s", p.Code, p.Body)
			}
		})
	}
	if p := d.Post(strings.Repeat(" ", 1<<20) + servertest.BodyX); p.Code != 400 || !strings.Contains(p.Body, "the body is larger than") {
		t.Errorf("oversized: got %d %s", p.Code, p.Body)
	}
	if p := d.Post(servertest.BodyX); p.Code != 200 {
		t.Errorf("and then: %d %s", p.Code, p.Body)
	}
}
