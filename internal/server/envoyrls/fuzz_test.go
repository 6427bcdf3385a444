package envoyrls_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// FuzzRequest posts any bytes: the answer is a decision or blames the caller,
// never the daemon.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		"", "null", "{}", servertest.BodyX,
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
	written := servertest.NewValidLines(f)
	var handlers []http.Handler
	for _, name := range []string{"none", "ratelimit", "x-ratelimit", "ietf"} {
		rpc := servertest.NewRPC(f, servertest.FuzzLimits, servertest.WithHeaders(name), withMetadata, servertest.Recording(written))
		handlers = append(handlers, http.HandlerFunc(rpc.PostJSON))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		defer written.Check(t)
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
