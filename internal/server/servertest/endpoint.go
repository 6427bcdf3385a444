package servertest

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/mem"

	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	"github.com/ratelimitd/ratelimitd/internal/server/envoyrls"
)

// NewEndpoint returns an endpoint as a server makes one from its options, for an API
// without a server and without a port: for what is asked too often for one.
func NewEndpoint(o server.Options, name string) *endpoint.Endpoint {
	counters := func(labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "test"}, labels)
	}
	return &endpoint.Endpoint{
		Name: name,
		Decider: decide.New(decide.Options{
			Live: o.Live, Store: o.Store, Refuses: func() error { return nil }, Modes: o.Modes, Bounds: o.Requests.Bounds,
			Assigned: o.Assigned, Now: func() int64 { return o.Now().UnixMicro() }, UnknownDomains: new(atomic.Uint64),
			OwnLimits: decide.NewResults(counters("result")), Hits: o.Hits, Tops: o.Tops,
		}),
		Bounds:    o.Requests.Bounds,
		Refunds:   o.Requests.Refunds,
		Callers:   o.Requests.Callers,
		Failures:  endpoint.NewFailureLog(o.Log, o.Now),
		Panics:    endpoint.NewPanicLog(o.Log, o.Now, counters().WithLabelValues()),
		Requests:  endpoint.NewRequestCounts(counters("api", "code", "outcome"), name),
		Durations: prometheus.NewHistogram(endpoint.DurationOpts("test", "")),
		Headers:   &o.Responses.Headers,
		Tracer:    o.Tracer,
		Recorder:  o.Recorder,
	}
}

// RPC is Envoy's RPC on an endpoint of its own.
type RPC struct{ *envoyrls.API }

// NewRPC returns Envoy's RPC on the limits.
func NewRPC(t testing.TB, limits string, change ...func(*server.Options)) RPC {
	t.Helper()
	o := NewOptions(t, limits, change...)
	return RPC{envoyrls.New(NewEndpoint(o, "grpc"), o.Responses.DynamicMetadata)}
}

// AnswerBytes answers the bytes of a request as gRPC does.
func (r RPC) AnswerBytes(ctx context.Context, request []byte) ([]byte, error) {
	c := r.Call()
	if err := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(request)}, c); err != nil {
		return nil, err
	}
	if err := r.Answer(ctx, c.Call, nil); err != nil {
		return nil, err
	}
	out, err := codec.Marshal(c)
	if err != nil {
		return nil, err
	}
	return out[0].ReadOnlyData(), nil
}

// codec is that of the server.
var codec = endpoint.NewCodec()
