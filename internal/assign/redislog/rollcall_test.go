package redislog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/assigntest"
	"github.com/ratelimitd/ratelimitd/internal/assign/redislog"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// hasPlan waits until a daemon has a plan of a subject in force.
func hasPlan(t *testing.T, d *daemon, s assign.Subject, plan string) {
	t.Helper()
	asynctest.Eventually(t, "it has the plan "+plan, func() bool {
		a := d.Table().Get(s)
		return a != nil && a.Plan == plan
	})
}

// caughtUp waits until a daemon has caught up, and wants it to have a plan then.
func caughtUp(t *testing.T, d *daemon, s assign.Subject, plan string) {
	t.Helper()
	asynctest.Eventually(t, "it catches up", func() bool { return d.CatchUp(t.Context()) == nil })
	if a := d.Table().Get(s); a == nil || a.Plan != plan {
		t.Errorf("a daemon that has caught up has %v, want the plan %s", a, plan)
	}
}

// awaiting returns the daemons that a change waits for, which a test may replace.
func awaiting(all ...string) (*atomic.Pointer[redislog.Awaited], func(context.Context) (redislog.Awaited, error)) {
	p := new(atomic.Pointer[redislog.Awaited])
	p.Store(&redislog.Awaited{IDs: all})
	return p, func(context.Context) (redislog.Awaited, error) { return *p.Load(), nil }
}

// A daemon misses a change, and Redis loses it before the daemon is back. It has caught
// up only once it has that change from a daemon that knows it.
func TestDaemonThatWasAwayTakesOverWhatRedisHasLost(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	_, alone := awaiting("here")
	_, both := awaiting("away", "here")
	here := startLoaded(t, c, redislog.Options{ID: "here", Awaited: alone})
	away, proxy := cutOff(t, c, redislog.Options{ID: "away", Awaited: both})
	subject := assigntest.Subject("api", "acme")
	for range 3 {
		assigntest.Apply(t, here, assigntest.Plan(subject, "old"))
		hasPlan(t, away, subject, "old")
		caughtUp(t, away, subject, "old")
		proxy.Refuse()
		assigntest.Apply(t, here, assigntest.Plan(subject, "new"))
		here.lose(t, everything...)
		proxy.Heal(t)
		caughtUp(t, away, subject, "new")
	}
}

// Where Redis has lost something, a daemon that does not answer is waited for until it is
// gone: it may have what Redis lacks. So are those that a lost register does not name.
func TestWhoeverMayHaveWhatRedisHasLostIsWaitedFor(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	awaited, all := awaiting("away", "silent")
	away := startLoaded(t, c, redislog.Options{ID: "away", Awaited: all})
	subject := assigntest.Subject("api", "acme")
	awaited.Store(&redislog.Awaited{IDs: []string{"away"}})
	assigntest.Apply(t, away, assigntest.Plan(subject, "old"))
	for _, while := range []redislog.Awaited{{IDs: []string{"away", "silent"}}, {IDs: []string{"away"}, Lacks: time.Hour}} {
		awaited.Store(&redislog.Awaited{IDs: []string{"away", "silent"}})
		caughtUp(t, away, subject, "old") // nothing is lost, and there is no answer
		awaited.Store(&while)
		away.lose(t, everything...)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		for ctx.Err() == nil {
			if away.CatchUp(ctx) == nil {
				t.Fatalf("it has caught up, where it should wait: %+v", while)
			}
		}
		cancel()
		awaited.Store(&redislog.Awaited{IDs: []string{"away"}})
		caughtUp(t, away, subject, "old")
	}
}

// After a failover of the register the few who signed in just before it may not be known. A
// daemon that catches up waits for those that are, and for who hears the call.
func TestWhoeverSignedInBeforeAFailoverIsHeard(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	awaited, all := awaiting("away")
	away := startLoaded(t, c, redislog.Options{ID: "away", Awaited: all})
	subject := assigntest.Subject("api", "acme")
	assigntest.Apply(t, away, assigntest.Plan(subject, "old"))
	caughtUp(t, away, subject, "old")
	awaited.Store(&redislog.Awaited{IDs: []string{"away"}, Lacks: time.Hour, IsMoved: true})
	caughtUp(t, away, subject, "old")
}

// Redis loses all, and a daemon that missed the last change comes back first and puts back
// what it has. Nothing is changed through it before those answer that may have newer.
func TestNothingIsChangedThroughADaemonThatHasNotCaughtUp(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	_, both := awaiting("away", "here")
	var away *daemon
	caughtUp := func(ctx context.Context) error { return away.CatchUp(ctx) }
	away, awayProxy := cutOff(t, c, redislog.Options{ID: "away", Awaited: both, CaughtUp: caughtUp})
	here, hereProxy := cutOff(t, c, redislog.Options{ID: "here"})
	subject := assigntest.Subject("api", "acme")
	assigntest.Apply(t, here, assigntest.Plan(subject, "old"))
	hasPlan(t, away, subject, "old")
	awayProxy.Refuse()
	assigntest.Apply(t, here, assign.Change{Assignment: assign.Assignment{Subject: subject, Terms: assign.Terms{Blocked: true}, By: "ann"}})
	hereProxy.Refuse()
	(&daemon{conn: clientOf(t, c)}).lose(t, everything...)
	awayProxy.Heal(t)
	asynctest.Eventually(t, "it puts back what it has", func() bool { return len(inRedis(t, away, 32)) == 1 })
	change := []assign.Change{assigntest.Plan(subject, "new")}
	applied, err := away.Apply(t.Context(), change)
	if r := applied.Results[0]; err == nil || r.Outcome != assign.Failed || !r.Passes || !errors.Is(r.Err, assign.ErrNothingChanged) {
		t.Errorf("a change through it is told as %+v, %v", r, err)
	}
	hereProxy.Heal(t)
	asynctest.Eventually(t, "a plan is assigned", func() bool {
		applied, err := away.Apply(t.Context(), change)
		return err == nil && len(applied.Pending) == 0
	})
	if a := away.Table().Get(subject); a == nil || !a.Blocked || a.Plan != "new" {
		t.Errorf("in force is %+v, want the plan new and the block", a)
	}
}

// Redis loses all, the register too. A daemon that starts has caught up only once those
// that hear it are known, and have put back what Redis lacks.
func TestDaemonThatStartsHearsOfALoss(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	here := startLoaded(t, c, redislog.Options{ID: "here"})
	subject := assigntest.Subject("api", "acme")
	assigntest.Apply(t, here, assigntest.Plan(subject, "old"))
	// Nobody can put back while somebody else is at it.
	restorer := c.Prefix + "{~assign}~restorer"
	if err := here.conn.Set(t.Context(), restorer, "somebody", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	here.lose(t, everything...)
	awaited, known := awaiting("fresh")
	awaited.Store(&redislog.Awaited{IDs: []string{"fresh"}, Lacks: time.Hour})
	fresh := startLoaded(t, c, redislog.Options{ID: "fresh", Awaited: known})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := fresh.CatchUp(ctx); err == nil {
		t.Error("it has caught up with nothing")
	}
	if err := here.conn.Del(t.Context(), restorer).Err(); err != nil {
		t.Fatal(err)
	}
	awaited.Store(&redislog.Awaited{IDs: []string{"fresh", "here"}})
	caughtUp(t, fresh, subject, "old")
}

// answers is a daemon that answers each call as a test says, and does something once its
// answer is read.
type answers struct {
	answer func(call string)
	read   func()
}

func (answers) DialHook(next redis.DialHook) redis.DialHook { return next }

func (answers) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (a answers) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, c := range cmds {
			args := c.Args()
			if i := slices.Index(args, any("call")); i > 0 {
				a.answer(args[i+1].(string))
			}
			if key, _ := args[1].(string); args[0] == "get" && strings.Contains(key, "~answer:") && c.Err() == nil {
				a.read()
			}
		}
		return err
	}
}

// Redis loses all after another daemon has said how far it is. What the caller then puts
// back is not what that daemon has, though it is written later.
func TestWhatACallerPutsBackIsNotWhatOthersHave(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	_, both := awaiting("away", "other")
	away := startLoaded(t, c, redislog.Options{ID: "away"})
	assigntest.Apply(t, away, assigntest.Plan(assigntest.Subject("api", "acme"), "old"))
	away.stop()
	client := clientOf(t, c)
	further := make(map[string]string)
	for _, tag := range hashTags(32) {
		if client.Exists(t.Context(), c.Prefix+"{"+tag+"}~changes").Val() > 0 {
			further[tag] = fmt.Sprintf("%d-0", time.Now().UnixMilli())
		}
	}
	text, err := json.Marshal(further)
	if err != nil {
		t.Fatal(err)
	}
	away = startLoaded(t, c, redislog.Options{ID: "away", Awaited: both})
	away.conn.AddHook(answers{
		answer: func(call string) {
			client.Set(context.Background(), c.Prefix+"{~assign}~answer:"+call+":other", text, time.Minute)
		},
		read: sync.OnceFunc(func() { (&daemon{conn: client}).lose(t, everything...) }),
	})
	if err := away.CatchUp(t.Context()); err == nil {
		t.Error("it has caught up with what it has put back itself")
	}
}

// A daemon that could not be reached when it was called hears a later call.
func TestWhoMissesACallIsCalledAgain(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	_, both := awaiting("away", "here")
	away := startLoaded(t, c, redislog.Options{ID: "away", Awaited: both})
	here, proxy := cutOff(t, c, redislog.Options{ID: "here"})
	subject := assigntest.Subject("api", "acme")
	assigntest.Apply(t, here, assigntest.Plan(subject, "old"))
	hasPlan(t, away, subject, "old")
	proxy.Refuse()
	away.lose(t, everything...)
	asynctest.Eventually(t, "it puts back what it has", func() bool { return len(inRedis(t, away, 32)) == 1 })
	heal := sync.OnceFunc(func() { proxy.Heal(t) })
	away.conn.AddHook(answers{answer: func(string) { heal() }, read: func() {}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := away.CatchUp(ctx); err != nil {
		t.Errorf("it does not catch up: %v", err)
	}
}
