package takeapi_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	"github.com/ratelimitd/ratelimitd/internal/server/takeapi"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

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
		`{"domain":"api","id":"one","settleWithin":"86400s","descriptors":[{"entries":[{"key":"tenant","value":"x"}],"cost":3}]}`,
		`{"domain":"api","id":"one","descriptors":[{"entries":[{"key":"tenant","value":"x"}],"cost":"4503599627370496"},{"entries":[{"key":"user","value":"x"}]}]}`,
		`{"domain":"api","id":"\u0000~","settleWithin":"-1s","descriptors":[{"cost":0}]}`,
	} {
		f.Add([]byte(seed))
	}
	written := servertest.NewValidLines(f)
	o := servertest.NewOptions(f, servertest.FuzzLimits, servertest.Recording(written))
	routes := takeapi.New(servertest.NewEndpoint(o, "api_http")).Routes()
	f.Fuzz(func(t *testing.T, body []byte) {
		defer written.Check(t)
		post := func(path string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			routes["POST "+path](w, httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body)))
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
		switch w := post("/v1/settle"); w.Code {
		case http.StatusBadRequest, http.StatusOK:
		default:
			t.Fatalf("settle: status %d: %s", w.Code, w.Body)
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
