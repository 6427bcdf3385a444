package server

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Bounds of a request.
type Bounds struct {
	// Descriptors of a request, entries of a descriptor, and bytes of all the
	// text in a request.
	Descriptors, Entries, Bytes int
}

// envoy serves envoy.service.ratelimit.v3.RateLimitService. Each door has its
// own, which counts its requests.
type envoy struct {
	rlsv3.UnimplementedRateLimitServiceServer
	decider  *decider
	bounds   Bounds
	failures *failureLog
	requests *requestCounts
}

// ShouldRateLimit decides all descriptors of a request as one group.
//
// It fails with INVALID_ARGUMENT for a request that cannot be meant, with
// UNIMPLEMENTED for parts of the protocol that are not served, and with
// UNAVAILABLE when the store does not answer. A caller that goes away or
// whose deadline passes first gets CANCELED or DEADLINE_EXCEEDED. A denial is
// no failure.
func (e *envoy) ShouldRateLimit(ctx context.Context, r *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	code := codes.Internal // which a panic becomes
	defer func() { e.requests.add(code) }()
	c := e.decider.newCall()
	defer e.decider.release(c)
	err := e.read(r, c)
	if err == nil {
		err = e.decider.decide(ctx, c)
	}
	if err != nil {
		err = asStatus(ctx, err)
		code = status.Code(err)
		e.failures.log(err)
		return nil, err
	}
	response := answer(c)
	code = codes.OK
	return response, nil
}

// asStatus turns the store's errors into what a client can act on.
func asStatus(ctx context.Context, err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return status.Error(codes.Canceled, "the caller has gone")
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		// What the caller's own clock tells it at this moment too.
		return status.Errorf(codes.DeadlineExceeded, "the store did not decide before the caller's deadline: %v", err)
	}
	return status.Errorf(codes.Unavailable, "the store did not decide: %v", err)
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// read checks a request and copies it into c.
func (e *envoy) read(r *rlsv3.RateLimitRequest, c *call) error {
	c.domain = r.GetDomain()
	if c.domain == "" {
		return invalid("domain is empty; a request names the domain of its limits")
	}
	asked := r.GetDescriptors()
	if len(asked) == 0 {
		return invalid("descriptors is empty; a request has at least one")
	}
	if len(asked) > e.bounds.Descriptors {
		return invalid("descriptors: found %d, at most %d are allowed (setting grpc.max_descriptors)", len(asked), e.bounds.Descriptors)
	}
	cost := int64(max(1, r.GetHitsAddend()))
	size := len(c.domain)
	for i, d := range asked {
		if len(d.GetEntries()) > e.bounds.Entries {
			return invalid("descriptors[%d].entries: found %d, at most %d are allowed (setting grpc.max_entries)", i, len(d.GetEntries()), e.bounds.Entries)
		}
		if err := unserved(i, d); err != nil {
			return err
		}
		for _, entry := range d.GetEntries() {
			size += len(entry.GetKey()) + len(entry.GetValue())
			c.entries = append(c.entries, bucket.Entry{Key: entry.GetKey(), Value: entry.GetValue()})
		}
	}
	if size > e.bounds.Bytes {
		return invalid("the request holds %d bytes of text, at most %d are allowed (setting grpc.max_bytes)", size, e.bounds.Bytes)
	}
	rest := c.entries
	for _, d := range asked {
		n := len(d.GetEntries())
		c.descriptors = append(c.descriptors, descriptor{entries: rest[:n:n], cost: cost})
		rest = rest[n:]
	}
	return nil
}

// unserved refuses what would otherwise be decided differently from what the
// caller means.
func unserved(i int, d *ratelimitv3.RateLimitDescriptor) error {
	field := ""
	switch {
	case d.GetLimit() != nil:
		field = "limit"
	case d.GetHitsAddend() != nil:
		field = "hits_addend"
	case d.GetIsNegativeHits():
		field = "is_negative_hits"
	default:
		return nil
	}
	return status.Errorf(codes.Unimplemented, "descriptors[%d].%s is not served", i, field)
}

// answer turns a decided call into the response.
func answer(c *call) *rlsv3.RateLimitResponse {
	r := &rlsv3.RateLimitResponse{
		OverallCode: rlsv3.RateLimitResponse_OK,
		Statuses:    make([]*rlsv3.RateLimitResponse_DescriptorStatus, len(c.outcomes)),
	}
	statuses := make([]rlsv3.RateLimitResponse_DescriptorStatus, len(c.outcomes))
	var retry time.Duration
	degraded := false
	for i := range c.outcomes {
		o, s := &c.outcomes[i], &statuses[i]
		r.Statuses[i] = s
		s.Code = rlsv3.RateLimitResponse_OK
		if o.rule != nil && o.rule.Unlimited && len(o.decisions) == 0 {
			s.LimitRemaining = math.MaxUint32
		}
		limit, d := o.decisive()
		if limit == nil {
			continue
		}
		s.CurrentLimit = currentLimit(limit)
		s.LimitRemaining = uint32(min(d.Remaining, math.MaxUint32))
		s.DurationUntilReset = durationpb.New(ceilSeconds(d.ResetAfter))
		if !d.Allowed() {
			s.Code = rlsv3.RateLimitResponse_OVER_LIMIT
			r.OverallCode = rlsv3.RateLimitResponse_OVER_LIMIT
			if retry != bucket.Never && (d.RetryAfter == bucket.Never || d.RetryAfter > retry) {
				retry = d.RetryAfter
			}
		}
		for _, d := range o.decisions {
			degraded = degraded || d.Degraded
		}
	}
	// Who can never succeed is not told to come back.
	if retry > 0 {
		r.ResponseHeadersToAdd = []*corev3.HeaderValue{{
			Key:   retryAfter,
			Value: strconv.FormatInt(int64(ceilSeconds(retry)/time.Second), 10),
		}}
	}
	if degraded {
		r.DynamicMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{"degraded": structpb.NewBoolValue(true)}}
	}
	return r
}

const retryAfter = "retry-after"

func currentLimit(l *bucket.Limit) *rlsv3.RateLimitResponse_RateLimit {
	return &rlsv3.RateLimitResponse_RateLimit{
		Name:            l.Name,
		RequestsPerUnit: uint32(l.Requests), // at most MaxRequests
		Unit:            units[l.Period],
	}
}

const day = 24 * time.Hour

// units are the periods that have a name on the wire; all others are UNKNOWN,
// the zero value.
var units = map[time.Duration]rlsv3.RateLimitResponse_RateLimit_Unit{
	time.Second: rlsv3.RateLimitResponse_RateLimit_SECOND,
	time.Minute: rlsv3.RateLimitResponse_RateLimit_MINUTE,
	time.Hour:   rlsv3.RateLimitResponse_RateLimit_HOUR,
	day:         rlsv3.RateLimitResponse_RateLimit_DAY,
	7 * day:     rlsv3.RateLimitResponse_RateLimit_WEEK,
	30 * day:    rlsv3.RateLimitResponse_RateLimit_MONTH,
	365 * day:   rlsv3.RateLimitResponse_RateLimit_YEAR,
}

// ceilSeconds rounds up to whole seconds.
func ceilSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// messageBound is the size of the largest message that can hold text of so
// many bytes within the other bounds; larger ones are refused unread.
func (b Bounds) messageBound() int {
	const overhead = 16 // of an entry or descriptor: tags and lengths
	return b.Bytes + overhead*b.Descriptors*(b.Entries+1) + 1024
}
