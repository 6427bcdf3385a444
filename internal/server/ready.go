package server

import (
	"context"
	"errors"
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

// readiness is whether requests should come here, until the daemon is told to
// stop.
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
	known := r.why != "" || r.serving
	if known && r.serving == serving {
		r.why = why
		return
	}
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

// Readiness is when the health check of a daemon says SERVING.
type Readiness uint8

const (
	// OnceStoreAnswered is from the store's first answer on.
	OnceStoreAnswered Readiness = iota
	// WhileStoreAnswers is only while the store answers.
	WhileStoreAnswers
	// Always does not wait for the store: something answers in its place.
	Always
)

const (
	pingEvery    = 200 * time.Millisecond
	pingLogEvery = time.Minute
	// failedPings is after how many pings in a row that failed a store counts
	// as one that does not answer.
	failedPings = 3
)

// watchReadiness follows the store and what else must hold until ctx ends.
func (s *Server) watchReadiness(ctx context.Context) {
	w := &readinessWatch{Server: s}
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		w.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// readinessWatch is what is known about a server's readiness.
type readinessWatch struct {
	*Server
	answered  bool // the store has, once
	failed    int  // pings in a row
	announced bool
	logged    time.Time // when it was logged that the store does not answer, or refuses
	refused   bool      // it was that it refuses
}

func (w *readinessWatch) look(ctx context.Context) {
	var err error
	if !w.answered || w.options.Readiness == WhileStoreAnswers {
		err = w.ping(ctx)
	}
	if ctx.Err() != nil {
		return
	}
	if lack := w.lackOfLimits(); lack != "" {
		w.ready.set(false, lack)
		return
	}
	// Asked once: what it says may have changed the next time.
	if refusal := w.options.Refuses(); refusal != nil {
		w.ready.set(false, "the daemon must not serve: "+refusal.Error())
		return
	}
	away := false
	switch w.options.Readiness {
	case OnceStoreAnswered:
		away = !w.answered
	case WhileStoreAnswers:
		away = !w.answered || w.failed >= failedPings
	}
	if away {
		if err != nil {
			w.ready.set(false, lackOfStore(err)+": "+err.Error())
		}
		return
	}
	if w.ready.set(true, "") && !w.announced {
		w.announced = true
		w.log.Info("serving", "grpc", w.Address("grpc"), "http", w.Address("http"), "admin", w.Address("admin"), "metrics", w.Address("metrics"))
	}
}

// lackOfLimits says why the rules, as they are, are not enough to be ready.
func (w *readinessWatch) lackOfLimits() string {
	rules := w.options.Live.Rules()
	switch {
	case rules == nil:
		return "no limits are loaded yet"
	case w.options.ReadyOnlyWithDomain && len(rules.Domains()) == 0:
		return "the limits have no domain"
	}
	return ""
}

func (w *readinessWatch) ping(ctx context.Context) error {
	err := w.options.Store.Ping(ctx)
	if err == nil {
		if !w.logged.IsZero() {
			w.log.Info("the store answers")
			w.logged, w.refused = time.Time{}, false
		}
		w.failed = 0
		if !w.answered && w.options.OnAnswer != nil {
			w.options.OnAnswer(ctx)
		}
		w.answered = true
		return nil
	}
	w.failed++
	refused := errors.Is(err, bucket.ErrRefused)
	if now := time.Now(); ctx.Err() == nil && (now.Sub(w.logged) >= pingLogEvery || refused && !w.refused) {
		w.logged, w.refused = now, refused
		level := slog.LevelWarn
		if refused {
			level = slog.LevelError // it does not end by itself
		}
		w.log.Log(ctx, level, lackOfStore(err), "error", err)
	}
	return err
}

// lackOfStore says what a ping that failed means.
func lackOfStore(err error) string {
	if errors.Is(err, bucket.ErrRefused) {
		return "the store refuses the daemon"
	}
	return "the store does not answer"
}
