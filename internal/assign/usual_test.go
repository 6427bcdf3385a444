package assign

import (
	"reflect"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

func usual() *Assignment {
	return &Assignment{Subject: Subject{Domain: "api", Entries: []bucket.Entry{{Key: "tenant", Value: "acme"}, {Key: "user", Value: "ann"}}},
		Terms: Terms{Plan: "pro", Numbers: []Numbers{{Requests: 7}, {Limit: "month", Requests: 500, Period: time.Hour, Burst: 9}}},
		Ends:  Ends{PlanUntil: 5, NumbersUntil: []int64{5, 5}}, Reason: "asked", By: "ann", At: 7, ETag: "1-1"}
}

func TestUsualAssignmentsAreDecodedFast(t *testing.T) {
	t.Parallel()
	if s, ok := decodeUsual(string(Encode(usual()))); !ok || s.ETag != "1-1" {
		t.Errorf("got %+v, %t", s, ok)
	}
}

// FuzzDecodeUsual holds it against the decoder of JSON.
func FuzzDecodeUsual(f *testing.F) {
	f.Add(string(Encode(usual())))
	f.Add(`{"blocked":true,"unlimited":true,"until":1,"until":2,"domain":"","entries":[]}`)
	f.Add(`{"numbers":[{"limit":"a","requests":1,"burst":2},{"requests":0}],"numbers":[]}`)
	f.Add(`{"at":01,"by":"\u0041","etag":"é"}`)
	f.Fuzz(func(t *testing.T, text string) {
		fast, ok := decodeUsual(text)
		if !ok {
			return
		}
		slow, err := decodeAny([]byte(text))
		if err != nil || !reflect.DeepEqual(fast, slow) {
			t.Fatalf("%q: got %+v, want %+v, %v", text, fast, slow, err)
		}
	})
}
