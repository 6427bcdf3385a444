package servertest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/server"
)

// Ask asks over gRPC about descriptors such as "user=alice,plan=free". It fails the test
// if there is no answer.
func (d *Daemon) Ask(domain string, cost uint32, descriptors ...string) *rlsv3.RateLimitResponse {
	d.T.Helper()
	return d.Send(Request(domain, cost, descriptors...))
}

// Send sends a request over gRPC. It fails the test if there is no answer.
func (d *Daemon) Send(r *rlsv3.RateLimitRequest) *rlsv3.RateLimitResponse {
	d.T.Helper()
	response, err := d.Try(r)
	if err != nil {
		d.T.Fatal(err)
	}
	return response
}

// Try sends a request over gRPC.
func (d *Daemon) Try(r *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	return d.RLS.ShouldRateLimit(ctx, r)
}

// Request makes a request about descriptors such as "user=alice,plan=free"; cost 0 leaves
// hits_addend unset.
func Request(domain string, cost uint32, descriptors ...string) *rlsv3.RateLimitRequest {
	r := &rlsv3.RateLimitRequest{Domain: domain, HitsAddend: cost}
	for _, text := range descriptors {
		d := &ratelimitv3.RateLimitDescriptor{}
		for _, part := range strings.Split(text, ",") {
			if k, v, ok := strings.Cut(part, "="); ok {
				d.Entries = append(d.Entries, Entry(k, v))
			}
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

// Copies returns n copies of a descriptor.
func Copies(n int, descriptor string) []string {
	return strings.Split(strings.Repeat(descriptor+" ", n-1)+descriptor, " ")
}

// Entry makes an entry of a descriptor.
func Entry(key, value string) *ratelimitv3.RateLimitDescriptor_Entry {
	return &ratelimitv3.RateLimitDescriptor_Entry{Key: key, Value: value}
}

// ToJSON returns a request as a body for /json.
func ToJSON(t testing.TB, r *rlsv3.RateLimitRequest) string {
	t.Helper()
	text, err := protojson.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Show writes a response so that a table can hold it: the overall code, then
// each status as "CODE name requests/UNIT remaining N reset S", with UNIT as 90xSECOND
// if it has a multiplier.
func Show(r *rlsv3.RateLimitResponse) string {
	parts := []string{r.GetOverallCode().String()}
	for _, s := range r.GetStatuses() {
		text := s.GetCode().String()
		if l := s.GetCurrentLimit(); l != nil {
			text += fmt.Sprintf(" %s %d/", l.GetName(), l.GetRequestsPerUnit())
			if m := l.GetUnitMultiplier(); m != nil {
				text += fmt.Sprintf("%dx", m.GetValue())
			}
			text += l.GetUnit().String()
		}
		text += fmt.Sprintf(" remaining %d", s.GetLimitRemaining())
		if reset := s.GetDurationUntilReset(); reset != nil {
			text += " reset " + reset.AsDuration().String()
		}
		parts = append(parts, text)
	}
	for _, h := range r.GetResponseHeadersToAdd() {
		parts = append(parts, h.GetKey()+": "+h.GetValue())
	}
	return strings.Join(parts, "; ")
}

// WantShown fails the test unless Show writes a response like this.
func WantShown(t testing.TB, r *rlsv3.RateLimitResponse, want string) {
	t.Helper()
	if got := Show(r); got != want {
		t.Errorf("response:\n got %s\nwant %s", got, want)
	}
}

// Charging makes a request with hits for each descriptor: "5", "-5", or "" for
// the hits of the request.
func Charging(t testing.TB, cost uint32, hits []string, descriptors ...string) *rlsv3.RateLimitRequest {
	t.Helper()
	r := Request("api", cost, descriptors...)
	for i, text := range hits {
		text, r.Descriptors[i].IsNegativeHits = strings.CutPrefix(text, "-")
		if text == "" {
			continue
		}
		var n uint64
		if _, err := fmt.Sscan(text, &n); err != nil {
			t.Fatal(err)
		}
		r.Descriptors[i].HitsAddend = wrapperspb.UInt64(n)
	}
	return r
}

// Overriding makes a request about one descriptor with a limit of its own:
// "9/HOUR", or "9/90xSECOND" with a multiplier.
func Overriding(t testing.TB, cost uint32, descriptor, limit string) *rlsv3.RateLimitRequest {
	t.Helper()
	r := Request("api", cost, descriptor)
	r.Descriptors[0].Limit = ParseOverride(t, limit)
	return r
}

// ParseOverride reads a limit of a descriptor's own, as Overriding takes it.
func ParseOverride(t testing.TB, limit string) *ratelimitv3.RateLimitDescriptor_RateLimitOverride {
	t.Helper()
	var o ratelimitv3.RateLimitDescriptor_RateLimitOverride
	requests, unit, _ := strings.Cut(limit, "/")
	if multiplier, name, ok := strings.Cut(unit, "x"); ok {
		unit = name
		o.UnitMultiplier = new(wrapperspb.UInt32Value)
		if _, err := fmt.Sscan(multiplier, &o.UnitMultiplier.Value); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := fmt.Sscan(requests, &o.RequestsPerUnit); err != nil {
		t.Fatal(err)
	}
	o.Unit = typev3.RateLimitUnit(typev3.RateLimitUnit_value[unit])
	return &o
}

// Override asks with a limit of the descriptor and returns the answer as Show
// writes it.
func (d *Daemon) Override(cost uint32, descriptor, limit string) string {
	d.T.Helper()
	return Show(d.Send(Overriding(d.T, cost, descriptor, limit)))
}

// WithHeaders makes a server use a style of headers, with the usual names.
func WithHeaders(name string) func(*server.Options) {
	return func(o *server.Options) {
		o.Responses.Headers = settings.Default().Headers
		o.Responses.Headers.Style = settings.HeaderStyle(name)
	}
}
