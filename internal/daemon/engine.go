package daemon

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
	"github.com/ratelimitd/ratelimitd/internal/bucket/zone"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/daemon/reach"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/fallback"
	"github.com/ratelimitd/ratelimitd/internal/fleet"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

// engine has the store that decides and, with Redis, its fallback and the register
// of daemons.
type engine struct {
	store    bucket.Store
	many     decide.ManyTaker   // nil without Redis
	fallback *fallback.Fallback // nil without Redis
	fleet    *fleet.Membership  // nil without Redis
	// change returns the last change of assignments that was followed. It is set once
	// these are open.
	change func() string
	redis  *redisconn.Conn // nil without Redis
	// refusal returns why Redis will not decide for this daemon. It is nil
	// without Redis.
	refusal func(context.Context) error
	// onAnswer is called at the store's first answer. It is nil without Redis.
	onAnswer func(context.Context)
	// counted returns how many of some keys have a state. It is nil with Redis, which
	// other daemons count in too.
	counted func(keys []string) int
}

func newEngine(version string, s settings.Settings, live *rules.Live, tracer *tracing.Tracer, metrics prometheus.Registerer, log *slog.Logger) (*engine, error) {
	memory := newMemory(s.Memory, s.Decisions.IsWhole())
	showMemory(metrics, memory)
	if s.Store == settings.StoreMemory {
		return &engine{store: memory, counted: memory.Counted}, nil
	}
	redisconn.LogClient(log)
	redis, err := reach.Redis(s.Redis, log)
	if err != nil {
		return nil, err
	}
	e := &engine{redis: redis}
	o := fleetOptions(version, s, live, log)
	o.Change = func() string { return e.change() }
	e.fleet = fleet.New(fleet.Register{Redis: e.redis}, o)
	showFleet(metrics, e.fleet)
	replicas := e.fleet.Size
	if n := s.Failure.Replicas; n > 0 {
		replicas = func() int { return n }
	}
	e.fallback = fallback.New(fallback.Options{Mode: s.Failure.Mode, Local: memory, Replicas: replicas, Metrics: metrics})
	if err := e.openRedisStore(s.Redis, live, tracer, metrics, log); err != nil {
		return nil, err
	}
	return e, nil
}

func fleetOptions(version string, s settings.Settings, live *rules.Live, log *slog.Logger) fleet.Options {
	return fleet.Options{
		Address:     reach.Address(s.GRPC),
		Version:     version,
		HashTags:    s.Redis.HashTags,
		StateFormat: script.StateFormat,
		Reads:       script.Formats(),
		Rules: func() string {
			switch rules := live.Rules(); {
			case rules == nil:
				return ""
			case rules.HasCalendars():
				return fleet.InZones(rules.Fingerprint(), zone.Version())
			default:
				return rules.Fingerprint()
			}
		},
		Zones: zone.Version(),
		Log:   log,
	}
}

// openRedisStore makes the store on Redis, once its fallback and the register exist.
func (e *engine) openRedisStore(r settings.Redis, live *rules.Live, tracer *tracing.Tracer, metrics prometheus.Registerer, log *slog.Logger) error {
	options := redisstore.Options{
		HashTags:     r.HashTags,
		Batch:        redisstore.BatchBounds{Size: r.Batch.Size, InFlight: r.Batch.InFlight, Queue: r.Batch.Queue},
		DenialMemory: r.DenialMemory,
		DenialBytes:  r.DenialBytes,
		MaxClockSkew: r.MaxClockSkew,
		Fallback:     e.fallback,
		Metrics:      metrics,
		Log:          log,
	}
	if tracer != nil {
		options.OnBatch = tracer.Batch
	}
	store, err := redisstore.New(e.redis, options)
	if err != nil {
		return err
	}
	e.store, e.many, e.refusal = store, store, store.Refusal
	e.onAnswer = func(ctx context.Context) {
		for _, w := range store.Warnings(ctx) {
			log.Warn(w)
		}
		if rules := live.Rules(); rules != nil && rules.HasHolders() {
			if err := store.HolderRights(ctx); err != nil {
				log.Warn("limits of requests in flight (algorithm: concurrency) cannot be decided by Redis: its user lacks a right; see docs/redis.md for those that suffice", "error", err)
			}
		}
	}
	return nil
}

// refusedByStore returns why the store will not decide for this daemon, or nil if
// it does, or does not answer. With a wrong password the daemon must not start:
// each daemon of a fleet would answer from its own memory.
func (e *engine) refusedByStore(ctx context.Context) error {
	if e.refusal == nil {
		return nil
	}
	return e.refusal(ctx)
}

// refuses returns why the daemon must not serve, or nil.
func (e *engine) refuses() error {
	if e.fleet == nil {
		return nil
	}
	return e.fleet.Conflict()
}

// daemons returns a function that returns the daemons of the register, the ID of this one,
// and the time of that list. It is nil without Redis.
func (e *engine) daemons() func(context.Context) ([]fleet.Daemon, string, time.Time, error) {
	if e.fleet == nil {
		return nil
	}
	return func(ctx context.Context) ([]fleet.Daemon, string, time.Time, error) {
		all, at, err := fleet.Register{Redis: e.redis}.Daemons(ctx)
		return all, e.fleet.ID(), at, err
	}
}

// daemonIDs returns the IDs of the daemons in the register.
func (e *engine) daemonIDs(ctx context.Context) ([]string, error) {
	all, _, _, err := e.daemons()(ctx)
	ids := make([]string, len(all))
	for i, d := range all {
		ids[i] = d.ID
	}
	return ids, err
}

func (e *engine) close() error {
	err := e.store.Close()
	if e.redis != nil {
		err = errors.Join(err, e.redis.Close(), e.fallback.Close())
	}
	return err
}

// newMemory returns a store in memory. The order of decisions is needed if all of them
// are recorded, to replay them.
func newMemory(m settings.Memory, ordered bool) *memstore.Store {
	whenFull := map[settings.WhenFull]memstore.WhenFull{
		settings.AllowWhenFull: memstore.Allow,
		settings.DenyWhenFull:  memstore.Deny,
		settings.EvictWhenFull: memstore.Evict,
	}
	return memstore.New(memstore.Options{MaxKeys: m.MaxKeys, MaxBytes: memoryBytes(m), WhenFull: whenFull[m.WhenFull], Ordered: ordered})
}
