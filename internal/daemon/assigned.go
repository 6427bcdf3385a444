package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/filestore"
	"github.com/ratelimitd/ratelimitd/internal/assign/redislog"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/daemon/reach"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
)

// assignments are the store of assignments, and what is known about it.
type assignments struct {
	assign.Store
	// known says that decisions may be made: all are loaded, or there is a snapshot, or
	// the store does not answer.
	known atomic.Bool
	// load loads them. It is nil if Run does that.
	load func(context.Context) error
	// log keeps them in Redis, and redis is its connection; both are nil without Redis.
	log   *redislog.Store
	redis *redisconn.Conn
}

// changesWithin is the least timeout of commands about assignments: imports send large
// ones, and no request waits for them.
const changesWithin = 2 * time.Second

// newAssignments opens the store of assignments: where the states of limits are, or
// in a file beside a store in memory.
func newAssignments(s settings.Settings, e *engine, metrics prometheus.Registerer, log *slog.Logger) (*assignments, error) {
	a := new(assignments)
	hooks := assign.Hooks{Forget: e.store.Forget, Counted: e.counted}
	open := a.openFile
	if e.redis != nil {
		open = a.openRedis
	}
	if err := open(s, e, hooks, log); err != nil {
		return nil, err
	}
	a.show(metrics)
	return a, nil
}

func (a *assignments) openFile(s settings.Settings, _ *engine, hooks assign.Hooks, log *slog.Logger) error {
	path, isAuto := s.Assignments.Path, s.Assignments.Path == settings.AutoPath
	if isAuto {
		path = settings.UsualPath
	}
	store, err := filestore.New(filestore.Options{
		Path:           path,
		Optional:       isAuto,
		MaxRecords:     s.Assignments.MaxRecords,
		MaxAssignments: s.Assignments.Max,
		Hooks:          hooks,
		Log:            log,
	})
	if err != nil {
		return err
	}
	a.Store, a.load = store, store.Load
	return nil
}

func (a *assignments) openRedis(s settings.Settings, e *engine, hooks assign.Hooks, log *slog.Logger) error {
	r := s.Redis
	r.Timeout = max(r.Timeout, changesWithin)
	conn, err := reach.Redis(r, log)
	if err != nil {
		return err
	}
	store := redislog.New(conn, redislog.Options{
		Name:           reach.Address(s.GRPC),
		CachePath:      s.Assignments.CachePath,
		Where:          whereOf(s.Redis),
		MaxRecords:     s.Assignments.MaxRecords,
		MaxAssignments: s.Assignments.Max,
		Hooks:          hooks,
		Log:            log,
	})
	a.Store, a.redis, a.log = store, conn, store
	e.change = store.Change
	return nil
}

// whereOf says which Redis, and which prefix in it, holds the assignments.
func whereOf(r settings.Redis) string {
	addresses := slices.Sorted(slices.Values(r.Addresses))
	return fmt.Sprintf("%s %s master %q, database %d, prefix %q", r.Mode, strings.Join(addresses, ","), r.SentinelMaster, r.Database, r.Prefix)
}

// close closes the store.
func (a *assignments) close() error {
	err := a.Store.Close()
	if a.redis != nil {
		err = errors.Join(err, a.redis.Close())
	}
	return err
}

func (a *assignments) show(metrics prometheus.Registerer) {
	factory := promauto.With(metrics)
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ratelimitd_assignments",
		Help: "Assignments that this daemon has.",
	}, func() float64 { return float64(a.Table().Len()) })
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ratelimitd_assignments_loaded",
		Help: "1 once this daemon has had all assignments; 0 before. It decides nothing then, or without Redis by those that it has.",
	}, func() float64 { return oneIf(a.Loaded()) })
	leftOut := func(kind string, of func(blocks, others int64) int64) {
		factory.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "ratelimitd_assignments_left_out",
			Help:        "About how many assignments are in Redis and not in this daemon, since there are more than assignments.max. Their subjects get what the limits files say.",
			ConstLabels: prometheus.Labels{"kind": kind},
		}, func() float64 {
			if a.log == nil {
				return 0 // a file with more is not opened
			}
			return float64(of(a.log.LeftOut()))
		})
	}
	leftOut("block", func(blocks, _ int64) int64 { return blocks })
	leftOut("other", func(_, others int64) int64 { return others })
	factory.NewCounterFunc(prometheus.CounterOpts{
		Name: "ratelimitd_assignments_lost_changes_total",
		Help: "Changes of assignments that this daemon had in force and that Redis has lost. The log names their subjects: make them again.",
	}, func() float64 { lost, _ := a.losses(); return float64(lost) })
	factory.NewCounterFunc(prometheus.CounterOpts{
		Name: "ratelimitd_assignments_restored_total",
		Help: "Assignments that this daemon put back after Redis had lost them.",
	}, func() float64 { _, restored := a.losses(); return float64(restored) })
}

// losses returns how many changes Redis has lost, and how many assignments this daemon has
// put back.
func (a *assignments) losses() (changes, restored int64) {
	if a.log == nil {
		return 0, 0
	}
	return a.log.Losses()
}

// lacks returns why a daemon with these assignments should not get requests, or nil.
func (a *assignments) lacks() error {
	if a.log == nil {
		return nil
	}
	return a.log.Lacks()
}

// errLoading is why nothing is decided yet.
var errLoading = errors.New("the assignments are not loaded yet")

// loading returns why nothing is decided yet, or nil.
func (a *assignments) loading() error {
	if a.known.Load() {
		return nil
	}
	return errLoading
}

const (
	// loadsUnseen is how long a start waits for assignments before it serves its ports,
	// once it is known whether Redis answers: callers of a daemon with a few thousand of
	// them then get no error.
	loadsUnseen = 500 * time.Millisecond
	// answersSoon is how long a daemon waits for Redis to answer, or, with a snapshot,
	// for all assignments to be loaded, before it decides without them. loadsWithin is
	// how long it waits for that without a snapshot.
	answersSoon = 2 * time.Second
	loadsWithin = 30 * time.Second
)

// run loads assignments and follows their changes, until ctx ends. It returns once all
// are loaded, or after a short wait. Nothing is decided until they are, or Redis turns
// out not to answer; they then hold from when it does. fail is called if they can never
// be loaded.
func (a *assignments) run(ctx context.Context, e *engine, background *sync.WaitGroup, log *slog.Logger, fail func(error)) {
	background.Go(func() {
		if a.load != nil {
			if err := a.load(ctx); err != nil {
				if ctx.Err() == nil {
					fail(err)
				}
				return
			}
		}
		a.Run(ctx)
	})
	awaited := make(chan struct{})
	background.Go(func() {
		defer close(awaited)
		a.await(ctx, e, log)
	})
	unseen := loadsUnseen
	if a.log != nil {
		unseen += answersSoon
	}
	select {
	case <-awaited:
	case <-time.After(unseen):
	}
}

// await waits until decisions may be made.
func (a *assignments) await(ctx context.Context, e *engine, log *slog.Logger) {
	began := time.Now()
	for !a.Loaded() {
		waited := time.Since(began)
		if a.log != nil && waited > answersSoon && a.log.HasSnapshot() {
			log.Warn("assignments are those of the snapshot until Redis has all of them again")
			break
		}
		if a.log != nil && (waited > loadsWithin || a.log.IsForbidden() || waited > answersSoon && e.store.Ping(ctx) != nil) {
			log.Warn("assignments are not loaded yet: plans, blocks and numbers of customers do not hold until they are")
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
	a.known.Store(true)
}
