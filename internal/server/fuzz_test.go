package server_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/server"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

const fuzzLimits = `
domain: api
hash_tag: tenant
descriptors:
  - key: user
    rate_limits:
      - {name: a, requests: 10, period: 1s}
      - {name: b, unit: hour, requests_per_unit: 100}
    descriptors:
      - {key: route, value: "/a*", rate_limit: {requests: 3, period: 90s, algorithm: sliding_window}}
      - {key: route, rate_limit: {unlimited: true}}
  - {key: tenant, rate_limit: {requests: 5, period: 1m, algorithm: sliding_log}}
`

// portless returns a server that does not listen.
func portless(t testing.TB, limits string, change ...func(*server.Options)) *server.Server {
	t.Helper()
	d := &daemon{t: t, log: new(logged), clock: newClock()}
	o := d.options(limits)
	o.GRPC.Address, o.HTTP.Address, o.Admin.Address = "", "", ""
	o.Log = slog.New(slog.DiscardHandler)
	for _, c := range change {
		c(&o)
	}
	s, err := server.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // a server has goroutines before it runs
		stop := make(chan time.Duration, 1)
		stop <- 0
		if err := s.Run(stop); err != nil {
			t.Error(err)
		}
	})
	return s
}

// FuzzRequest posts any bytes: the answer is a decision or blames the caller,
// never the daemon.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		"", "null", "{}", bodyX,
		`{"domain":"api","descriptors":[{"entries":[{"key":"user","value":"x"},{"key":"route","value":"/ab"}]}],"hitsAddend":4294967295}`,
		`{"domain":"api","descriptors":[{"entries":[{"key":"tenant","value":"\u0000{}"}]},{"entries":[{"key":"tenant","value":"\u0000{}"}]},{}]}`,
		`{"domain":"api","descriptors":[{"entries":[],"limit":{"requestsPerUnit":1,"unit":"HOUR"}}]}`,
		`{"domain":"api","descriptors":[{"entries":[{"key":"user","value":"x"}],"limit":{"requestsPerUnit":5,"unit":"DAY","unitMultiplier":366}},
			{"entries":[{"key":"user","value":"x"}],"hitsAddend":"18446744073709551615","isNegativeHits":true}]}`,
		`{"domain":"api","descriptors":[{"hitsAddend":"0"}]}`,
		`{"domain":"api","descriptors":[{"isNegativeHits":true}]}`,
		`{"domain":"api","hits_addend":1e3,"descriptors":[null]}`,
		"{\"domain\":\"\xff\",\"descriptors\":[{}]}",
	} {
		f.Add([]byte(seed))
	}
	written := newValidLines(f)
	var handlers []http.Handler
	for _, name := range []string{"none", "ratelimit", "x-ratelimit", "ietf"} {
		handlers = append(handlers, portless(f, fuzzLimits, style(name), withMetadata, recording(nil, written.gets)).HTTP())
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		defer written.check(t)
		for _, handler := range handlers {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/json", bytes.NewReader(body)))
			switch w.Code {
			case http.StatusBadRequest:
				return
			case http.StatusOK, http.StatusTooManyRequests:
			default:
				t.Fatalf("status %d: %s", w.Code, w.Body)
			}
			var asked rlsv3.RateLimitRequest
			if err := protojson.Unmarshal(body, &asked); err != nil {
				t.Fatalf("what is no request was decided: %v", err)
			}
			wantDecisions(t, w, &asked)
		}
	})
}

// wantDecisions checks that an answer agrees with itself and with the request.
func wantDecisions(t *testing.T, w *httptest.ResponseRecorder, asked *rlsv3.RateLimitRequest) {
	t.Helper()
	descriptors := len(asked.GetDescriptors())
	var r rlsv3.RateLimitResponse
	if err := protojson.Unmarshal(w.Body.Bytes(), &r); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
	if len(r.GetStatuses()) != descriptors {
		t.Fatalf("%d statuses for %d descriptors", len(r.GetStatuses()), descriptors)
	}
	if want := metadataOf(t, asked); !proto.Equal(r.GetDynamicMetadata(), want) {
		t.Fatalf("metadata %v, want %v", r.GetDynamicMetadata(), want)
	}
	denied := false
	for _, s := range r.GetStatuses() {
		denied = denied || s.GetCode() == rlsv3.RateLimitResponse_OVER_LIMIT
		if s.GetCode() == rlsv3.RateLimitResponse_UNKNOWN {
			t.Fatalf("a status without a code: %s", w.Body)
		}
	}
	over := r.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT
	if over != denied || over != (w.Code == http.StatusTooManyRequests) {
		t.Fatalf("status %d of %s", w.Code, w.Body)
	}
}

// FuzzTake posts any bytes to the daemon's own API: the answer is a consistent
// decision or blames the caller, never the daemon.
func FuzzTake(f *testing.F) {
	for _, seed := range []string{
		"", "null", "{}",
		`{"domain":"api","descriptors":[{"entries":[{"key":"user","value":"x"}],"cost":"18446744073709551615"},{"entries":[{"key":"tenant","value":"\u0000{}"}],"cost":0}]}`,
		`{"domain":"api","descriptors":[{"entries":[{"key":"user","value":"x"}],"numbers":{"requests":5,"period":"31622400s","burst":4294967295}}]}`,
		`{"domain":"api","descriptors":[{"entries":[{"key":"tenant","value":"x"}],"numbers":{"requests":1000,"period":"0.001s"}}]}`,
		`{"domain":"api","descriptors":[{"numbers":{"period":"-315576000000.999999999s"}}]}`,
		`{"take":{"domain":"api","descriptors":[{"entries":[{"key":"tenant","value":"x"}]}]},"takenAt":["1767225610250000"]}`,
		`{"take":{"domain":"api","descriptors":[{"entries":[{"key":"user","value":"x"}],"cost":9}]},"takenAt":[-1,"9223372036854775807"]}`,
	} {
		f.Add([]byte(seed))
	}
	written := newValidLines(f)
	handler := portless(f, fuzzLimits, recording(nil, written.gets)).HTTP()
	f.Fuzz(func(t *testing.T, body []byte) {
		defer written.check(t)
		post := func(path string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body)))
			return w
		}
		switch w := post("/v1/take"); w.Code {
		case http.StatusBadRequest:
		case http.StatusOK, http.StatusTooManyRequests:
			wantConsistent(t, w)
		default:
			t.Fatalf("take: status %d: %s", w.Code, w.Body)
		}
		switch w := post("/v1/give-back"); w.Code {
		case http.StatusBadRequest, http.StatusConflict, http.StatusOK:
		default:
			t.Fatalf("give-back: status %d: %s", w.Code, w.Body)
		}
	})
}

// wantConsistent checks that a TakeResponse agrees with itself.
func wantConsistent(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	var r ratelimitv1.TakeResponse
	if err := protojson.Unmarshal(w.Body.Bytes(), &r); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
	allowed := true
	for _, l := range r.GetLimits() {
		allowed = allowed && l.GetAllowed()
		if l.GetAllowed() && l.GetRetryAfter() != nil || l.GetRemaining() > l.GetCapacity() {
			t.Fatalf("a limit says %v", l)
		}
	}
	if r.GetAllowed() != allowed || allowed != (w.Code == http.StatusOK) || allowed != (r.DeniedBy == nil) {
		t.Fatalf("status %d of %s", w.Code, w.Body)
	}
	if denier := r.GetDeniedBy(); !allowed && !proto.Equal(r.GetLimits()[denier].GetRetryAfter(), r.GetRetryAfter()) {
		t.Fatalf("denied by %d, of %s", denier, w.Body)
	}
}
