package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// watches ends the health watches when the server stops. They never end by
// themselves, and a graceful stop waits for them.
type watches struct {
	stopping context.Context
	end      context.CancelFunc
}

func newWatches() *watches {
	w := new(watches)
	w.stopping, w.end = context.WithCancel(context.Background())
	return w
}

// untilStop is an interceptor of streams. The last message of a watch that it ends
// is NOT_SERVING, whatever the health server has sent before.
func (w *watches) untilStop(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if info.FullMethod != healthpb.Health_Watch_FullMethodName {
		return next(srv, stream)
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	stop := context.AfterFunc(w.stopping, cancel)
	defer stop()
	watch := &watchStream{ServerStream: stream, ctx: ctx}
	err := next(srv, watch)
	if w.stopping.Err() == nil {
		return err
	}
	if watch.last == healthpb.HealthCheckResponse_SERVING {
		_ = watch.SendMsg(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING})
	}
	return status.Error(codes.Unavailable, "the daemon stops")
}

// watchStream is a stream with a context of its own that remembers its last
// message.
type watchStream struct {
	grpc.ServerStream
	ctx  context.Context
	last healthpb.HealthCheckResponse_ServingStatus
}

func (s *watchStream) Context() context.Context { return s.ctx }

func (s *watchStream) SendMsg(m any) error {
	if h, ok := m.(*healthpb.HealthCheckResponse); ok {
		s.last = h.GetStatus()
	}
	return s.ServerStream.SendMsg(m)
}
