package server

import (
	"context"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// envoy serves envoy.service.ratelimit.v3.RateLimitService.
type envoy struct{ *door }

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
	return c.response()
}

// response returns that of a decided call.
func (c *call) response() (*rlsv3.RateLimitResponse, error) {
	response := new(rlsv3.RateLimitResponse)
	if err := proto.Unmarshal(c.appendResponse(nil), response); err != nil {
		return nil, status.Errorf(codes.Internal, "the response: %v", err)
	}
	return response, nil
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
