package takeapi_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// largeLimits have limits of 2^52, and ten billion tokens a month.
const largeLimits = `
domain: api
descriptors:
  - {key: most, rate_limit: {algorithm: fixed_window, requests: 4503599627370496, period: 1h}}
  - {key: bucket, rate_limit: {requests: 4503599627370496, period: 64s}}
  - {key: fine, rate_limit: {requests: 4503599616000000, period: 64s}} # which counts microseconds
  - {key: tokens, rate_limit: {algorithm: sliding_window, requests: 10_000_000_000, period: 30d, postpaid: true}}
`

func TestLimitsAndCostsBeyond32Bits(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, largeLimits)
	for _, c := range []struct {
		take      string
		allowed   bool
		remaining uint64
	}{
		{"most=x:4294967296", true, 1<<52 - 1<<32},
		{"most=x:4503595332403201", false, 1<<52 - 1<<32}, // one more than remains
		{"most=x:4503595332403200", true, 0},
		{"most=x:0", false, 0},
		{"most=y:4503599627370497", false, 1 << 52},
		{"most=y:18446744073709551615", false, 1 << 52},
		{"most=y:4503599627370496", true, 0},
		{"bucket=x:4503599627370495", true, 1},
		{"bucket=x:2", false, 1},
		{"tokens=x:9999999999", true, 1},
		{"tokens=x:18446744073709551615", true, 0}, // use is charged in full
		{"tokens=x:0", false, 0},
	} {
		r := d.Take(c.take)
		if l := r.GetLimits()[0]; r.GetAllowed() != c.allowed || l.GetRemaining() != c.remaining {
			t.Errorf("%s: allowed %v, %d remaining; want %v, %d", c.take, r.GetAllowed(), l.GetRemaining(), c.allowed, c.remaining)
		}
	}
	if l := d.Take("bucket=z").GetLimits()[0]; l.GetRequests() != 1<<52 || l.GetCapacity() != 1<<52 {
		t.Errorf("got %v", l)
	}
	// Two of a request add up, and do not wrap around.
	if r := d.Take("most=z:4503599627370496", "most=z:4503599627370496"); r.GetAllowed() || r.GetLimits()[1].GetRemaining() != 1<<52 || r.GetRetryAfter() != nil {
		t.Errorf("got %v", r)
	}
}

func TestOwnNumbersBeyond32Bits(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, largeLimits)
	for _, c := range []struct {
		key             string
		requests, burst uint64
		want            string // of the error; empty: valid
	}{
		{"most", 1 << 32, 0, ""},
		{"most", 1 << 52, 0, ""},
		{"bucket", 1 << 52, 1 << 33, ""},
		{"most", 1<<52 + 1, 0, "descriptors[0].numbers.requests: found 4503599627370497; allowed: 0 to 4503599627370496"},
		{"most", math.MaxUint64, 0, "descriptors[0].numbers.requests: found 18446744073709551615; allowed: 0 to 4503599627370496"},
		{"bucket", 5, 1<<63 + 7, "descriptors[0].numbers.burst: found 9223372036854775815; allowed: 1 to 4503599627370496"},
		{"bucket", 1<<52 - 1, 0, "descriptors[0].numbers.requests: found 4503599627370495 in 1h0m0s, which a token_bucket cannot count exactly; allowed: at most 75059993789508 requests, or a multiple of 60, or a fixed_window"},
	} {
		take := servertest.Taking(c.key + "=x")
		take.Descriptors[0].Numbers = &ratelimitv1.Numbers{Requests: c.requests, Burst: c.burst, Period: durationpb.New(time.Hour)}
		if c.key == "bucket" && c.want == "" {
			take.Descriptors[0].Numbers.Period = durationpb.New(64 * time.Second)
		}
		for range 2 { // the second from a cache
			r, err := d.API().Take(t.Context(), take)
			switch {
			case c.want != "":
				if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v: got %v, want %s", take, err, c.want)
				}
			case err != nil:
				t.Errorf("%v: %v", take, err)
			default:
				if l := r.GetLimits()[0]; l.GetRequests() != c.requests || c.burst != 0 && l.GetCapacity() != c.burst {
					t.Errorf("%v: got %v", take, l)
				}
			}
		}
	}
}

// In JSON they are numbers, and are read as numbers and as texts.
func TestLargeNumbersInJSON(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, largeLimits)
	take := func(cost, numbers string) servertest.Page {
		return d.Fetch("POST", "http", "/v1/take", strings.NewReader(
			fmt.Sprintf(`{"domain":"api","descriptors":[{"entries":[{"key":"most","value":"x"}],"cost":%s%s}]}`, cost, numbers)))
	}
	for i, c := range []struct{ cost, numbers, requests, remaining string }{
		{"1", "", "4503599627370496", "4503599627370495"},
		{`"4294967296"`, "", "4503599627370496", "4503595332403199"},
		{"0", `,"numbers":{"requests":10000000000,"period":"3600s"}`, "10000000000", "5705032703"},
		{"0", `,"numbers":{"requests":"10000000000","period":"3600s"}`, "10000000000", "5705032703"},
	} {
		p := take(c.cost, c.numbers)
		text := strings.ReplaceAll(p.Body, " ", "")
		for _, want := range []string{`"requests":` + c.requests + `,`, `"capacity":` + c.requests + `,`, `"remaining":` + c.remaining + `,`, `"takenAt":"`} {
			if p.Code != 200 || !strings.Contains(text, want) {
				t.Errorf("%d: %d %s, want %s in it", i, p.Code, p.Body, want)
			}
		}
	}
}
