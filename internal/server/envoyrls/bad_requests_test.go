package envoyrls_test

import (
	"context"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

const limitsOfThree = servertest.OneLimit + `
  - {key: log, rate_limit: {requests: 5, period: 1h, algorithm: sliding_log}}
  - {key: bucket, rate_limit: {requests: 5, period: 1h, algorithm: token_bucket}}
`

func TestBadRequestsAreRefused(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, limitsOfThree)
	for _, c := range []struct {
		name    string
		request *rlsv3.RateLimitRequest
		code    codes.Code
		says    string
	}{
		{"nothing at all", &rlsv3.RateLimitRequest{}, codes.InvalidArgument, "domain is empty"},
		{"empty domain", servertest.Request("", 1, "user=x"), codes.InvalidArgument, "domain is empty"},
		{"no descriptors", servertest.Request("api", 1), codes.InvalidArgument, "descriptors is empty"},
		{"too many descriptors", servertest.Request("api", 1, servertest.Copies(101, "user=x")...), codes.InvalidArgument,
			"descriptors: found 101, at most 100 are allowed (setting grpc.max_descriptors)"},
		{"too many entries", servertest.Request("api", 1, "user=x", "user=x"+strings.Repeat(",user=x", 32)), codes.InvalidArgument,
			"descriptors[1].entries: found 33, at most 32 are allowed (setting grpc.max_entries)"},
		{"too much text", servertest.Request("api", 1, "user="+strings.Repeat("x", 65536-6)), codes.InvalidArgument,
			"the request holds 65537 bytes of text, at most 65536 are allowed (setting grpc.max_bytes)"},
		{"too much text in many entries", servertest.Request("api", 1, servertest.Copies(100, "user="+strings.Repeat("x", 652))...), codes.InvalidArgument,
			"the request holds 65603 bytes of text"},
		{"a long domain", servertest.Request(strings.Repeat("x", 65600), 1, "user=x"), codes.InvalidArgument, "bytes of text"},
		{"a limit without a unit", limited(9, typev3.RateLimitUnit_UNKNOWN, nil), codes.InvalidArgument,
			"descriptors[1].limit.unit: found UNKNOWN; allowed: SECOND, MINUTE, HOUR, DAY, MONTH, YEAR"},
		{"a limit with a unit that nobody knows", limited(9, 7, nil), codes.InvalidArgument,
			"descriptors[1].limit.unit: found 7; allowed: SECOND, MINUTE, HOUR, DAY, MONTH, YEAR"},
		{"a negative unit", limited(9, -1, nil), codes.InvalidArgument, "descriptors[1].limit.unit: found -1; allowed: SECOND"},
		{"a multiplier of 0", limited(9, typev3.RateLimitUnit_HOUR, wrapperspb.UInt32(0)), codes.InvalidArgument,
			"descriptors[1].limit.unit_multiplier: found 0; allowed: 1 to 8784 for the unit HOUR"},
		{"over 366 days", limited(9, typev3.RateLimitUnit_YEAR, wrapperspb.UInt32(2)), codes.InvalidArgument,
			"descriptors[1].limit.unit_multiplier: found 2; allowed: 1 to 1 for the unit YEAR"},
		{"the largest multiplier", limited(9, typev3.RateLimitUnit_SECOND, wrapperspb.UInt32(1<<32-1)), codes.InvalidArgument,
			"descriptors[1].limit.unit_multiplier: found 4294967295; allowed: 1 to 31622400 for the unit SECOND"},
		{"more than a log holds", of("log=x", limited(1001, typev3.RateLimitUnit_HOUR, nil)), codes.InvalidArgument,
			"descriptors[1].limit.requests_per_unit: found 1001; allowed: 0 to 1000 for a sliding_log"},
		{"what cannot be counted", of("bucket=x", limited(1<<32-1, typev3.RateLimitUnit_SECOND, wrapperspb.UInt32(31622399))), codes.InvalidArgument,
			"descriptors[1].limit.requests_per_unit: found 4294967295 in 8783h59m59s, which a token_bucket cannot count exactly; allowed: at most 142418025 requests, or a multiple of 31622399, or a period of 8783h59m0s, or a fixed_window"},
		{"a bad limit in an unknown domain", inDomain("unknown", limited(9, typev3.RateLimitUnit_UNKNOWN, nil)), codes.InvalidArgument,
			"descriptors[1].limit.unit: found UNKNOWN"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := d.Try(c.request)
			if status.Code(err) != c.code || !strings.Contains(status.Convert(err).Message(), c.says) {
				t.Errorf("gRPC: got %v, want %s: %s", err, c.code, c.says)
			}
			p := d.Post(servertest.ToJSON(t, c.request))
			if p.Code != 400 || !strings.Contains(p.Body, c.says) {
				t.Errorf("HTTP: got %d %s, want 400 with %q", p.Code, p.Body, c.says)
			}
		})
	}
	// No request was charged.
	servertest.WantShown(t, d.Ask("api", 1, "user=x"), "OK; OK u 5/HOUR remaining 4 reset 59m50s")
}

// limited returns a request whose second descriptor has a limit of its own.
func limited(requests uint32, unit typev3.RateLimitUnit, multiplier *wrapperspb.UInt32Value) *rlsv3.RateLimitRequest {
	r := servertest.Request("api", 1, "user=x", "user=x")
	r.Descriptors[1].Limit = &ratelimitv3.RateLimitDescriptor_RateLimitOverride{
		RequestsPerUnit: requests, Unit: unit, UnitMultiplier: multiplier,
	}
	return r
}

// of changes the entries of the second descriptor.
func of(descriptor string, r *rlsv3.RateLimitRequest) *rlsv3.RateLimitRequest {
	r.Descriptors[1].Entries = servertest.Request("", 1, descriptor).GetDescriptors()[0].GetEntries()
	return r
}

func inDomain(domain string, r *rlsv3.RateLimitRequest) *rlsv3.RateLimitRequest {
	r.Domain = domain
	return r
}

func TestLargestRequestIsAnswered(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit)
	// All bounds at once: 100 descriptors of 32 entries, 65,536 bytes.
	entries := strings.Repeat("key=012345678901234,", 32)
	r := servertest.Request(strings.Repeat("d", 65536-100*32*18), 1, servertest.Copies(100, strings.TrimSuffix(entries, ","))...)
	if got := d.Send(r); len(got.GetStatuses()) != 100 {
		t.Errorf("%d statuses", len(got.GetStatuses()))
	}
	if p := d.Post(servertest.ToJSON(t, r)); p.Code != 200 {
		t.Errorf("HTTP: %d %s", p.Code, p.Body)
	}
	servertest.WantShown(t, d.Ask("api", 1, "user="+strings.Repeat("x", 65536-7)), "OK; OK u 5/HOUR remaining 4 reset 59m50s")
}

// TestHugeRequestIsRefused sends more than the server ever reads.
func TestHugeRequestIsRefused(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit)
	huge := servertest.Request("api", 1, "user="+strings.Repeat("x", 3<<20))
	if _, err := d.Try(huge); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("gRPC: got %v, want %s", err, codes.ResourceExhausted)
	}
	p := d.Post(servertest.ToJSON(t, huge))
	if p.Code != 400 || !strings.Contains(p.Body, "the body is larger than") {
		t.Errorf("HTTP: got %d %s", p.Code, p.Body)
	}
	d.Ask("api", 1, "user=x")
	d.WantMetrics(map[string]float64{`ratelimitd_requests_total{api="grpc",code="ResourceExhausted",outcome="error"}`: 1})
}

// TestInvalidMessagesAreRefused sends bytes that are no RateLimitRequest over
// gRPC.
func TestInvalidMessagesAreRefused(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit)
	ctx, cancel := context.WithTimeout(context.Background(), servertest.Patience)
	defer cancel()
	for _, c := range []struct {
		name, message string
		code          codes.Code
	}{
		{"empty", "", codes.InvalidArgument},
		{"garbage", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", codes.Internal},
		{"a length beyond the end", "\x0a\x7fapi", codes.Internal},
		{"a domain that is no UTF-8", "\x0a\x02\xff\xfe", codes.Internal},
		{"a key that is no UTF-8", "\x0a\x03api\x12\x0b\x0a\x09\x0a\x04use\xff\x12\x01x", codes.Internal},
		// Envoy sends headers as they are.
		{"a value that is no UTF-8", "\x0a\x03api\x12\x0b\x0a\x09\x0a\x04user\x12\x01\xff", codes.OK},
		{"fields that nobody knows", "\x0a\x03api\x12\x0b\x0a\x09\x0a\x04user\x12\x01x\xfa\x3f\x01!", codes.OK},
	} {
		t.Run(c.name, func(t *testing.T) {
			var answer []byte
			err := d.Conn.Invoke(ctx, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, []byte(c.message), &answer,
				grpc.ForceCodec(servertest.RawCodec{}))
			if status.Code(err) != c.code {
				t.Errorf("got %v, want %s", err, c.code)
			}
		})
	}
	servertest.WantShown(t, d.Ask("api", 1, "user=x"), "OK; OK u 5/HOUR remaining 3 reset 59m50s")
	d.WantMetrics(map[string]float64{`ratelimitd_requests_total{api="grpc",code="Internal",outcome="error"}`: 4})
}
