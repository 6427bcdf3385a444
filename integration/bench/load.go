package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/client"
)

// load is what the callers of a row send.
type load struct {
	keys keys
	// key is the entry's key in every descriptor, population how many values it has, hot
	// the value if there is only one.
	key             string
	population, hot int
	descriptors     int
	callers         int
	// door is how the daemon is asked, and together how many requests one message has.
	door     door
	together int
	// isApart is whether each process has keys of its own.
	isApart bool
	// isSampled is whether requests carry a caller's span, of which one in sampledOf is
	// sampled.
	isSampled bool
	// reassigns is whether assignments change while it is measured.
	reassigns bool
}

// sampledOf: one request in this many is sampled.
const sampledOf = 100

// inFlight is how many requests the callers wait for.
func (l load) inFlight() int { return l.callers * max(1, l.together) }

// The stages of a slice of load.
const (
	warming int32 = iota
	measuring
	ending
)

// caller sends one request after the other. One goroutine at a time runs it; others may
// read the counters.
type caller struct {
	conn    *grpc.ClientConn
	request request
	pick    func() int
	reply   reply
	latency histogram
	tally   tally
	parents bool // whether requests carry a span
	asked   int

	// How the Go client is asked, if it is.
	client *client.Client
	key    string
	values []string // by what pick returns
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
		parents: l.isSampled,
		asked:   int(seed), // so that callers do not send sampled spans at the same time
	}
}

// withParent makes the next request carry a span.
func (c *caller) withParent(ctx context.Context) context.Context {
	const sampled, other = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	c.asked++
	if c.asked%sampledOf == 0 {
		return metadata.AppendToOutgoingContext(ctx, "traceparent", sampled)
	}
	return metadata.AppendToOutgoingContext(ctx, "traceparent", other)
}

// ask sends a request, waits for the answer, and counts it.
func (c *caller) ask(ctx context.Context) (err error) {
	if c.client != nil {
		err = c.allow(ctx)
	} else {
		err = c.call(ctx)
	}
	if err != nil {
		c.tally.failed.Add(1)
		c.tally.failure.Store(&err)
		c.request.renew()
	}
	return err
}

// call asks by Envoy's RPC.
func (c *caller) call(ctx context.Context) error {
	c.request.set(c.pick())
	if c.parents {
		ctx = c.withParent(ctx)
	}
	if err := c.conn.Invoke(ctx, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, &c.request, &c.reply); err != nil {
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

// afterFailure is the pause of a caller whose request failed, so that it does not spin on
// a broken connection.
const afterFailure = time.Millisecond

// closedLoop sends requests, each when the one before is answered, until stage says that
// the slice ends.
func (c *caller) closedLoop(stage *atomic.Int32) {
	for i := 0; stage.Load() != ending; i++ {
		isTimed := c.client == nil || i%timedOf == 0
		var began time.Time
		if isTimed {
			began = time.Now()
		}
		err := c.ask(context.Background())
		if isTimed && stage.Load() == measuring && err == nil {
			c.latency.record(time.Since(began))
		}
		if err != nil {
			time.Sleep(afterFailure)
		}
	}
}

// timedOf: one request to the Go client in this many is timed in a closed loop, since a
// look at the clock takes a third of the time of a decision.
const timedOf = 16

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

// pace sends arrivals of a Poisson process, at this rate a second, until stage says that
// the slice ends.
func pace(stage *atomic.Int32, rate float64, arrivals chan<- time.Time, dropped *atomic.Int64) {
	sleep := sleeper()
	defer close(arrivals)
	// The same for all servers of a row, but not for processes that share its load.
	random := rand.New(rand.NewPCG(1, uint64(os.Getpid())))
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

// run starts the callers' goroutines, for an open loop if rate is not 0.
func (s *subject) run(stage *atomic.Int32, rate float64, deadline time.Duration) *sync.WaitGroup {
	var all sync.WaitGroup
	if rate == 0 {
		for _, c := range s.callers {
			if s.row.load.together > 0 {
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

// blank stands for the value in a marshalled request: seven digits.
const blank = "#######"

// request is a marshalled request whose value can be changed in place.
type request struct {
	bytes []byte
	at    []int // where the values begin
}

// newRequest returns a request with this many descriptors of one entry each.
func newRequest(key string, descriptors int) request {
	m := &rlsv3.RateLimitRequest{Domain: domain}
	for i := range descriptors {
		m.Descriptors = append(m.Descriptors, descriptor(descriptorKey(key, i), blank))
	}
	return blanksOf(marshal(m))
}

// blanksOf finds where the values stand in a marshalled message.
func blanksOf(text []byte) request {
	r := request{bytes: text}
	for at := 0; ; at += len(blank) {
		next := bytes.Index(text[at:], []byte(blank))
		if next < 0 {
			return r
		}
		at += next
		r.at = append(r.at, at)
	}
}

func descriptor(key, value string) *ratelimitv3.RateLimitDescriptor {
	return &ratelimitv3.RateLimitDescriptor{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: key, Value: value}}}
}

// value is what set writes for n.
func value(n int) string { return fmt.Sprintf("%07d", n) }

// set makes n, below ten million, the value of every descriptor.
func (r *request) set(n int) {
	for i := len(blank) - 1; i >= 0; i-- {
		digit := byte('0' + n%10)
		n /= 10
		for _, at := range r.at {
			r.bytes[at+i] = digit
		}
	}
}

// renew gives the request new bytes, because the old ones may still be in flight.
func (r *request) renew() { r.bytes = bytes.Clone(r.bytes) }

// marshal is for messages that this package made, which always marshal.
func marshal(m proto.Message) []byte {
	text, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return text
}

// keys is how callers pick their key.
type keys string

const (
	even      keys = "even"      // any of all, equally often
	zipf      keys = "zipf"      // the n-th in proportion to 1 / n^1.1
	hotUnder  keys = "hot-under" // all the same one, under its limit
	hotOver   keys = "hot-over"  // all the same one, over its limit
	zipfPower      = 1.1
)

// picker returns a function that picks a number below population, or only
// hot.
func (k keys) picker(seed uint64, population, hot int) func() int {
	random := rand.New(rand.NewPCG(seed, 1))
	switch k {
	case even:
		return func() int { return random.IntN(population) }
	case zipf:
		z := rand.NewZipf(random, zipfPower, 1, uint64(population-1))
		return func() int { return int(z.Uint64()) }
	default:
		return func() int { return hot }
	}
}

// histogram counts latencies in buckets that are at most 1/64 of their value wide, from
// subBuckets ns up to maxLatency; longer ones count as that.
type histogram struct {
	buckets [maxBucket + 1]uint32
}

const (
	subBits    = 6
	subBuckets = 1 << subBits
	maxLatency = 1<<37 - 1 // ns, 137 s
	maxBucket  = (37-subBits)*subBuckets + subBuckets - 1
)

// bucketOf returns the bucket of a latency in ns.
func bucketOf(ns uint64) int {
	ns = min(ns, maxLatency)
	if ns < subBuckets {
		return int(ns)
	}
	shift := bits.Len64(ns) - 1 - subBits
	return (shift+1)<<subBits + int(ns>>shift) - subBuckets
}

// middleOf returns the middle of a bucket in ns.
func middleOf(bucket int) float64 {
	if bucket < subBuckets {
		return float64(bucket)
	}
	shift := bucket>>subBits - 1
	low := uint64(bucket&(subBuckets-1)+subBuckets) << shift
	return float64(low) + float64(uint64(1)<<shift)/2
}

func (h *histogram) record(d time.Duration) { h.buckets[bucketOf(uint64(max(0, d)))]++ }

func (h *histogram) add(other *histogram) {
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
}

// quantile returns the latency in us that the share q of all does not exceed,
// or NaN when there are none.
func (h *histogram) quantile(q float64) float64 {
	var all uint64
	for _, n := range h.buckets {
		all += uint64(n)
	}
	rank := uint64(math.Ceil(q * float64(all)))
	var seen uint64
	for i, n := range h.buckets {
		seen += uint64(n)
		if n > 0 && seen >= rank {
			return middleOf(i) / 1000
		}
	}
	return math.NaN()
}
