package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/server/transport"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
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
	fmt.Fprintf(stdout, "serving at=%s\n", l.Addr())
	return g.Serve(l)
}

const (
	barePipelines = 200 // of
	barePipeline  = 64
)

// bareStates returns what a state alone costs the server: an MGET reads it, with others,
// and a SET with PX writes it. States have 32 bytes and keys as many values as in the
// rows. A decision needs both, and more besides. Machines differ by more than that, so
// Redis's times say little without this number.
func (r *redisServers) bareStates(ctx context.Context) (time.Duration, error) {
	value := make([]byte, 32)
	random := rand.New(rand.NewPCG(3, 4))
	run := func() error {
		for range barePipelines {
			keys := make([]string, barePipeline)
			for i := range keys {
				keys[i] = fmt.Sprintf("plain:user-%07d", random.IntN(population))
			}
			_, err := r.clients[0].Pipelined(ctx, func(p redis.Pipeliner) error {
				p.MGet(ctx, keys...)
				for _, key := range keys {
					p.Set(ctx, key, value, time.Minute)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := run(); err != nil { // most keys exist then, as in the rows
		return 0, err
	}
	before, err := cpuTime(r.servers[0].pid())
	if err != nil {
		return 0, err
	}
	if err := run(); err != nil {
		return 0, err
	}
	after, err := cpuTime(r.servers[0].pid())
	if err != nil {
		return 0, err
	}
	return (after - before) / (barePipelines * barePipeline), r.clients[0].FlushDB(ctx).Err()
}

// How the daemon runs gRPC, for the bare server that is tuned like it.
const (
	streamWorkers    = transport.StreamWorkers
	streamWindow     = transport.StreamWindow
	connectionWindow = transport.ConnectionWindow
)
