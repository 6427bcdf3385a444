package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
)

// load is what the callers of a row send.
type load struct {
	keys keys
	// key is the entry's key in every descriptor, population how many values
	// it has, hot the value where there is but one.
	key             string
	population, hot int
	descriptors     int
	callers         int
	// door is how the daemon is asked, and together how many requests a
	// message of it has.
	door     door
	together int
}

// inFlight is how many requests the callers wait for.
func (l load) inFlight() int { return l.callers * max(1, l.together) }

// The stages of a slice of load.
const (
	warming int32 = iota
	measuring
	ending
)

// caller asks one request after the other. One goroutine at a time runs it;
// the counters may be read by others.
type caller struct {
	conn    *grpc.ClientConn
	request request
	pick    func() int
	reply   reply
	latency histogram
	tally   tally
}

// tally counts answers.
type tally struct {
	ok, over, degraded, malformed, failed atomic.Int64
	failure                               atomic.Pointer[error] // the last
}

func (t *tally) answers() int64 { return t.ok.Load() + t.over.Load() }

func newCaller(conn *grpc.ClientConn, l load, seed uint64) *caller {
	return &caller{
		conn:    conn,
		request: newRequest(l.key, l.descriptors),
		pick:    l.keys.picker(seed, l.population, l.hot),
	}
}

// ask sends a request, waits for the answer, and counts it.
func (c *caller) ask(ctx context.Context) error {
	c.request.set(c.pick())
	err := c.conn.Invoke(ctx, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, &c.request, &c.reply)
	if err != nil {
		c.tally.failed.Add(1)
		c.tally.failure.Store(&err)
		c.request.renew()
		return err
	}
	switch c.reply.code {
	case rlsv3.RateLimitResponse_OK:
		c.tally.ok.Add(1)
	case rlsv3.RateLimitResponse_OVER_LIMIT:
		c.tally.over.Add(1)
	}
	if c.reply.degraded {
		c.tally.degraded.Add(1)
	}
	if c.reply.statuses != len(c.request.at) {
		c.tally.malformed.Add(1)
	}
	return nil
}

// afterFailure is the pause of a caller whose request failed, lest it spin on
// a connection that is gone.
const afterFailure = time.Millisecond

// closedLoop asks, each request when the one before is answered, until stage
// says that the slice ends.
func (c *caller) closedLoop(stage *atomic.Int32) {
	began := time.Now()
	for stage.Load() != ending {
		err := c.ask(context.Background())
		now := time.Now()
		if stage.Load() == measuring && err == nil {
			c.latency.record(now.Sub(began))
		}
		if began = now; err != nil {
			time.Sleep(afterFailure)
			began = time.Now()
		}
	}
}

// openLoop asks for each arrival. Its latency counts from when the arrival was
// due, so that requests that had to wait for a caller count in full. With a
// deadline, arrivals whose deadline passed before they were sent are dropped.
func (c *caller) openLoop(stage *atomic.Int32, arrivals <-chan time.Time, deadline time.Duration, dropped *atomic.Int64) {
	for due := range arrivals {
		ctx, cancel := context.Background(), func() {}
		if deadline > 0 {
			if time.Since(due) > deadline {
				dropped.Add(1)
				continue
			}
			ctx, cancel = context.WithDeadline(ctx, due.Add(deadline))
		}
		err := c.ask(ctx)
		cancel()
		if stage.Load() == measuring && err == nil {
			c.latency.record(time.Since(due))
		}
	}
}

// backlog is how many arrivals may wait for a caller, in multiples of the
// callers.
const backlog = 4

// pace sends arrivals of a Poisson process, so many a second, until stage says
// that the slice ends.
func pace(stage *atomic.Int32, rate float64, arrivals chan<- time.Time, dropped *atomic.Int64) {
	sleep := sleeper()
	defer close(arrivals)
	random := rand.New(rand.NewPCG(1, 2))
	for due := time.Now(); stage.Load() != ending; {
		due = due.Add(time.Duration(random.ExpFloat64() / rate * float64(time.Second)))
		for wait := time.Until(due); wait > 0; wait = time.Until(due) {
			sleep(wait)
		}
		select {
		case arrivals <- due:
		default:
			dropped.Add(1)
		}
	}
}

// run starts the callers' goroutines, for an open loop where rate is not 0.
func (s *subject) run(stage *atomic.Int32, rate float64, deadline time.Duration) *sync.WaitGroup {
	var all sync.WaitGroup
	if rate == 0 {
		for _, c := range s.callers {
			if s.row.load.door != envoyDoor {
				all.Go(func() { newBatchCaller(c, s.row.load).closedLoop(stage) })
			} else {
				all.Go(func() { c.closedLoop(stage) })
			}
		}
		return &all
	}
	arrivals := make(chan time.Time, backlog*len(s.callers))
	for _, c := range s.callers {
		all.Go(func() { c.openLoop(stage, arrivals, deadline, &s.dropped) })
	}
	all.Go(func() { pace(stage, rate, arrivals, &s.dropped) })
	return &all
}
