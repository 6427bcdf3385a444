package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/gctuning"
)

// The hidden commands under which this program is a bare server.
const (
	bareCommand      = "serve-bare"
	bareTunedCommand = "serve-bare-tuned"
)

// bare answers without deciding: what gRPC alone costs.
type bare struct {
	rlsv3.UnimplementedRateLimitServiceServer
	// responses are by number of descriptors.
	responses [maxDescriptors + 1]*rlsv3.RateLimitResponse
}

func newBare() *bare {
	b := &bare{}
	for n := range b.responses {
		r := &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK}
		for range n {
			r.Statuses = append(r.Statuses, &rlsv3.RateLimitResponse_DescriptorStatus{
				Code: rlsv3.RateLimitResponse_OK,
				CurrentLimit: &rlsv3.RateLimitResponse_RateLimit{
					RequestsPerUnit: 10_000_000,
					Unit:            rlsv3.RateLimitResponse_RateLimit_YEAR,
				},
				LimitRemaining:     9_999_000,
				DurationUntilReset: durationpb.New(time.Hour),
			})
		}
		b.responses[n] = r
	}
	return b
}

func (b *bare) ShouldRateLimit(_ context.Context, r *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	return b.responses[min(len(r.GetDescriptors()), maxDescriptors)], nil
}

// serveBare serves on a free port, which it prints first, until it is killed.
func serveBare(tuned bool, stdout io.Writer) error {
	var options []grpc.ServerOption
	if tuned {
		gctuning.Start()
		options = append(options,
			grpc.NumStreamWorkers(streamWorkers),
			grpc.StaticStreamWindowSize(streamWindow),
			grpc.StaticConnWindowSize(connectionWindow))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	g := grpc.NewServer(options...)
	rlsv3.RegisterRateLimitServiceServer(g, newBare())
	fmt.Fprintf(stdout, "serving grpc=%s\n", l.Addr())
	return g.Serve(l)
}
