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
	"github.com/ratelimitd/ratelimitd/internal/logthin"
)

// healthNames are the services that report health. "ratelimit" is the name that
// envoyproxy/ratelimit has.
var healthNames = []string{"", "ratelimit", rlsv3.RateLimitService_ServiceDesc.ServiceName}

// readiness says whether requests should come to this daemon.
type readiness struct {
	health *health.Server

	mu      sync.Mutex
	serving bool
	why     string // the reason not to serve
	ended   bool   // it will not serve again
}

func newReadiness() *readiness {
	r := &readiness{health: health.NewServer()}
	r.set(false, "starting")
	return r
}

// set changes the readiness. It reports false after end, and changes nothing.
func (r *readiness) set(serving bool, why string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return false
	}
	r.put(serving, why)
	return true
}

// put changes the readiness. The caller has the lock.
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

// Readiness says when the health check says SERVING.
type Readiness uint8

const (
	// OnceStoreAnswered: from the store's first answer on.
	OnceStoreAnswered Readiness = iota
	// WhileStoreAnswers: only while the store answers.
	WhileStoreAnswers
	// Always: at once, since a fallback answers where the store does not.
	Always
)

const (
	pingEvery    = 200 * time.Millisecond
	pingLogEvery = time.Minute
	// failedPings is the number of failed pings in a row after which the store counts as
	// not answering.
	failedPings = 3
)

// watchReadiness follows the store and the rules until ctx ends.
func (s *Server) watchReadiness(ctx context.Context) {
	w := &readinessWatch{Server: s}
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		w.check(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// readinessWatch decides about the readiness of a server.
type readinessWatch struct {
	*Server
	answered  bool // the store has answered once
	failed    int  // pings in a row
	announced bool
	lines     logthin.Thinner // about failures of the store
	logged    bool            // whether the last line is about a failure
	refused   bool            // whether that failure is a refusal
}

func (w *readinessWatch) check(ctx context.Context) {
	var err error
	if !w.answered || w.options.Health.Readiness == WhileStoreAnswers {
		err = w.ping(ctx)
	}
	if ctx.Err() != nil {
		return
	}
	if lack := w.lackOfLimits(); lack != "" {
		w.ready.set(false, lack)
		return
	}
	// It is asked once, since the next answer may differ.
	if refusal := w.options.Health.Refuses(); refusal != nil {
		w.ready.set(false, "the daemon must not serve: "+refusal.Error())
		return
	}
	if loading := w.options.Health.Loading(); loading != nil {
		w.ready.set(false, loading.Error())
		return
	}
	if lack := w.options.Health.Lacks(); lack != nil {
		w.ready.set(false, lack.Error())
		return
	}
	away := false
	switch w.options.Health.Readiness {
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

// lackOfLimits says why the rules do not suffice to be ready, or nothing.
func (w *readinessWatch) lackOfLimits() string {
	rules := w.options.Live.Rules()
	switch {
	case rules == nil && w.options.Health.BeforeLimits && !w.options.Health.OnlyWithDomain:
		return ""
	case rules == nil:
		return "no limits are loaded yet"
	case w.options.Health.OnlyWithDomain && len(rules.Domains()) == 0:
		return "the limits have no domain"
	}
	return ""
}

func (w *readinessWatch) ping(ctx context.Context) error {
	err := w.options.Store.Ping(ctx)
	if err == nil {
		if w.logged {
			w.log.Info("the store answers")
			w.lines.Reset()
			w.logged, w.refused = false, false
		}
		w.failed = 0
		if !w.answered && w.options.Health.OnAnswer != nil {
			w.options.Health.OnAnswer(ctx)
		}
		w.answered = true
		return nil
	}
	w.failed++
	if ctx.Err() != nil {
		return err
	}
	refused := errors.Is(err, bucket.ErrRefused)
	if refused && !w.refused {
		w.lines.Reset() // a refusal is logged at once
	}
	if _, due := w.lines.Due(w.options.Now(), pingLogEvery); due {
		w.logged, w.refused = true, refused
		level := slog.LevelWarn
		if refused {
			level = slog.LevelError // an operator must change a setting
		}
		w.log.Log(ctx, level, lackOfStore(err), "error", err)
	}
	return err
}

// lackOfStore says what a failed ping means.
func lackOfStore(err error) string {
	if errors.Is(err, bucket.ErrRefused) {
		return "the store refuses the daemon"
	}
	return "the store does not answer"
}
