package server

import (
	"context"
	"errors"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
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
	decider  *decider
	bounds   Bounds
	refunds  bool // are taken
	failures *failureLog
	requests *requestCounts
}

// ShouldRateLimit decides all descriptors of a request as one group.
//
// It fails with INVALID_ARGUMENT for a request that cannot be meant, with
// PERMISSION_DENIED for a refund where they are not taken, and with UNAVAILABLE
// when the store does not answer. A caller that goes away or whose deadline
// passes first gets CANCELED or DEADLINE_EXCEEDED. A denial is no failure.
func (e *envoy) ShouldRateLimit(ctx context.Context, r *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	c := e.decider.newCall()
	defer e.decider.release(c)
	in, err := proto.Marshal(r)
	if err == nil {
		err = c.unmarshal(string(in))
	}
	if err != nil {
		return nil, status.Errorf(codes.Internal, "the request: %v", err)
	}
	if err := e.answer(ctx, c); err != nil {
		return nil, err
	}
	var response rlsv3.RateLimitResponse
	if err := proto.Unmarshal(c.appendResponse(nil), &response); err != nil {
		return nil, status.Errorf(codes.Internal, "the response: %v", err)
	}
	return &response, nil
}

// answer decides a call that was read from the wire.
func (e *envoy) answer(ctx context.Context, c *call) error {
	code := codes.Internal // which a panic becomes
	defer func() { e.requests.add(code) }()
	err := e.check(c)
	if err == nil {
		err = e.decider.decide(ctx, c)
	}
	if err != nil {
		err = asStatus(ctx, err)
		code = status.Code(err)
		e.failures.log(err)
		return err
	}
	code = codes.OK
	return nil
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

// check refuses a request that is beyond the bounds, or that cannot be meant.
func (e *envoy) check(c *call) error {
	if c.domain == "" {
		return invalid("domain is empty; a request names the domain of its limits")
	}
	if len(c.descriptors) == 0 {
		return invalid("descriptors is empty; a request has at least one")
	}
	if len(c.descriptors) > e.bounds.Descriptors {
		return invalid("descriptors: found %d, at most %d are allowed (setting grpc.max_descriptors)", len(c.descriptors), e.bounds.Descriptors)
	}
	size := len(c.domain)
	for i := range c.descriptors {
		d := &c.descriptors[i]
		if len(d.entries) > e.bounds.Entries {
			return invalid("descriptors[%d].entries: found %d, at most %d are allowed (setting grpc.max_entries)", i, len(d.entries), e.bounds.Entries)
		}
		if d.refund && !e.refunds {
			return status.Errorf(codes.PermissionDenied, "descriptors[%d].is_negative_hits: refunds are not taken here (setting api.refunds)", i)
		}
		if err := d.own.check(i); err != nil {
			return err
		}
		for _, entry := range d.entries {
			size += len(entry.Key) + len(entry.Value)
		}
		d.cost = c.cost(d)
	}
	if size > e.bounds.Bytes {
		return invalid("the request holds %d bytes of text, at most %d are allowed (setting grpc.max_bytes)", size, e.bounds.Bytes)
	}
	return nil
}

// cost is what a descriptor takes: its own hits, else those of the request, of
// which 0 and unset mean 1.
func (c *call) cost(d *descriptor) int64 {
	hits := uint64(max(1, c.hitsAddend))
	if d.hasHits {
		hits = d.hits
	}
	cost := int64(min(hits, bucket.MaxCost))
	if d.refund {
		return -cost
	}
	return cost
}

// seconds rounds up to whole seconds.
func seconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}

// messageBound is the size of the largest message that can hold text of so
// many bytes within the other bounds; larger ones are refused unread.
func (b Bounds) messageBound() int {
	const (
		overhead = 16 // of an entry or descriptor: tags and lengths
		numbers  = 48 // of a descriptor: its own limit and hits
	)
	return b.Bytes + b.Descriptors*(overhead*(b.Entries+1)+numbers) + 1024
}

// degradedMetadata is the dynamic_metadata of an answer that was made without
// the state of some limit.
var degradedMetadata = func() []byte {
	out, err := proto.Marshal(&structpb.Struct{Fields: map[string]*structpb.Value{"degraded": structpb.NewBoolValue(true)}})
	if err != nil {
		panic(err) // it stands above
	}
	return out
}()
