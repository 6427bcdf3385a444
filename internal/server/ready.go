package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// healthNames are the services whose health can be asked; "ratelimit" is what
// Envoy's own service calls itself.
var healthNames = []string{"", "ratelimit", rlsv3.RateLimitService_ServiceDesc.ServiceName}

// readiness is whether requests should come here: from when the store has
// answered once until the daemon is told to stop.
type readiness struct {
	health *health.Server

	mu      sync.Mutex
	serving bool
	why     string // it is not serving
	ended   bool   // it will not serve again
}

func newReadiness() *readiness {
	r := &readiness{health: health.NewServer()}
	r.set(false, "starting")
	return r
}

// set reports false where it came after the end and changed nothing.
func (r *readiness) set(serving bool, why string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return false
	}
	r.put(serving, why)
	return true
}

// put is called with mu held.
func (r *readiness) put(serving bool, why string) {
	r.serving, r.why = serving, why
	st := healthpb.HealthCheckResponse_NOT_SERVING
	if serving {
		st = healthpb.HealthCheckResponse_SERVING
	}
	for _, name := range healthNames {
		r.health.SetServingStatus(name, st)
	}
}

// end says NOT_SERVING for good.
func (r *readiness) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.put(false, "stopping")
}

func (r *readiness) isServing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.serving
}

func (r *readiness) reason() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.why
}

const (
	pingEvery    = 200 * time.Millisecond
	pingLogEvery = time.Minute
)

// waitForStore returns when the store has answered, and nil, or when ctx ends.
func (r *readiness) waitForStore(ctx context.Context, store bucket.Store, log *slog.Logger) error {
	var logged time.Time
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		err := store.Ping(ctx)
		if err == nil {
			if !logged.IsZero() {
				log.Info("the store answers")
			}
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.set(false, "the store does not answer: "+err.Error())
		if time.Since(logged) >= pingLogEvery {
			logged = time.Now()
			log.Warn("the store does not answer; not serving until it does", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
