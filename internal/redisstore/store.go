package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/fallback"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// Options of a Store.
type Options struct {
	// HashTags is the number of hash tags over which keys are spread, 1 to
	// 16384. All daemons that share keys must agree on it.
	HashTags int
	// Batch bounds the batches; the zero BatchBounds sends each request alone.
	Batch BatchBounds
	// DenialMemory is how long a denial is repeated without asking Redis; 0 to
	// a second.
	DenialMemory time.Duration
	// DenialBytes bounds the bytes of remembered denials; at least
	// MinDenialBytes, and 0 means DefaultDenialBytes.
	DenialBytes int
	// MaxClockSkew is how far ahead of Redis's clock a state may be. A state
	// from further ahead was written by a wrong clock, and goes on from now.
	// 0 means bucket.DefaultMaxClockSkew; it is never negative.
	MaxClockSkew time.Duration
	// Fallback decides what Redis does not; if it is nil, a Take or Check then fails.
	// It belongs to the caller.
	Fallback *fallback.Fallback
	// Metrics is where the store's metrics are registered; nil means nowhere.
	Metrics prometheus.Registerer
	// Log gets a line when a node stops answering, refuses, or answers again;
	// nil means no log.
	Log *slog.Logger
	// OnBatch is called with each batch that carried a take with a bucket.Trace, and
	// returns the name of the span that it made of it. It must be quick: the answers to
	// the batch wait for it. nil means that no take is traced.
	OnBatch func(bucket.TracedBatch) bucket.SpanRef
	// Clock replaces the clock of Redis, in microseconds since the Unix
	// epoch. It is for tests; production leaves it nil.
	Clock func() int64
	// OwnClock replaces the clock of this machine, in microseconds since the Unix epoch,
	// by which the windows of limits by calendar are chosen. It is for tests, and nil
	// means Clock; production leaves it nil.
	OwnClock func() int64
}

// The bytes of remembered denials: the default, and the useful minimum.
const (
	DefaultDenialBytes = 16 << 20
	MinDenialBytes     = 1 << 20
)

// BatchBounds bound the batches that are sent to a node.
type BatchBounds struct {
	// Size is the maximum number of hits in a batch; a request with more goes alone. 0
	// and 1 send every request alone, as soon as there is a connection: InFlight is
	// then redisconn.PoolPerNode, whatever it says.
	Size int
	// InFlight is the maximum number of batches in flight to a node; at least 1.
	InFlight int
	// Queue is the maximum number of requests that wait for a batch to a node; at least
	// 1. With a Size of 0 or 1 it may be 0, which means no bound.
	Queue int
}

// bounds returns what b means to a batcher.
func (b BatchBounds) bounds() BatchBounds {
	if b.Size > 1 {
		return b
	}
	if b.Queue == 0 {
		b.Queue = math.MaxInt
	}
	return BatchBounds{Size: 1, InFlight: redisconn.PoolPerNode, Queue: b.Queue}
}

// Store is a bucket.Store in Redis.
type Store struct {
	redis     *redisconn.Conn
	isCluster bool         // then a command has keys of one tag
	seed      maphash.Seed // of the hashes of keys
	tags      script.Tags
	heads     []string // by tag: the beginning of its keys, prefix and tag
	timeout   time.Duration
	batch     BatchBounds
	denials   *denials           // nil: off
	fallback  *fallback.Fallback // nil: none
	clock     func() int64
	ownClock  func() int64
	skew      string // the script's argument
	metrics   *metrics
	log       *slog.Logger
	onBatch   func(bucket.TracedBatch) bucket.SpanRef
	pings     atomic.Uint32

	requests sync.Pool

	// byTag says which node has the keys of each tag. It is only a guess, used for
	// batching: the client sends each command to the node that has its slot, so a wrong
	// guess costs no more than a batch that goes to two servers.
	byTag          atomic.Pointer[[]*node]
	topologyDoubts chan struct{} // has an element when byTag may be wrong
	closed         atomic.Bool
	ctx            context.Context // ends what runs in the background
	cancel         context.CancelFunc
	background     sync.WaitGroup // of followTopology and forgetDenials
	resends        sync.WaitGroup // of resend, which only nodes start
}

var _ bucket.Store = (*Store)(nil)

// New returns a store on the servers that conn reaches. If conn does not load
// script.Source into them, the first command to each does. A Take, Check or
// GiveBack takes no longer than the timeout of conn; a Take over several hash
// tags of a cluster that lost a race may take as long again, to give back what it
// took. conn belongs to the caller, who closes it after the store. New fails only
// on invalid options.
func New(conn *redisconn.Conn, o Options) (*Store, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{
		redis:          conn,
		isCluster:      conn.Cluster() != nil,
		seed:           maphash.MakeSeed(),
		tags:           script.NewTags(o.HashTags),
		timeout:        conn.Timeout(),
		batch:          o.Batch.bounds(),
		fallback:       o.Fallback,
		clock:          o.Clock,
		skew:           strconv.FormatInt(cmp.Or(o.MaxClockSkew, bucket.DefaultMaxClockSkew).Microseconds(), 10),
		log:            o.Log,
		onBatch:        o.OnBatch,
		topologyDoubts: make(chan struct{}, 1),
	}
	for _, clock := range []func() int64{o.OwnClock, o.Clock, func() int64 { return time.Now().UnixMicro() }} {
		if s.ownClock == nil {
			s.ownClock = clock
		}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.requests.New = func() any { return newRequest() }
	for _, tag := range s.tags {
		s.heads = append(s.heads, conn.Prefix()+"{"+tag+"}:")
	}
	if o.DenialMemory > 0 {
		s.denials = newDenials(o.DenialMemory, cmp.Or(o.DenialBytes, DefaultDenialBytes), s.seed, s.denialTime)
		s.background.Go(s.forgetDenials)
	}
	s.metrics = newMetrics(o.Metrics, s)
	s.startTopology()
	return s, nil
}

// denialTime returns now, or in tests the time of the clock that replaces it.
func (s *Store) denialTime(now time.Time) time.Time {
	if s.clock == nil {
		return now
	}
	return time.UnixMicro(s.clock())
}

func (o *Options) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("redis: "+format, args...)) }
	if o.HashTags < 1 || o.HashTags > script.ClusterSlots {
		bad("%d hash tags, where 1 to %d are allowed", o.HashTags, script.ClusterSlots)
	}
	if o.Batch.Size > 1 && (o.Batch.InFlight < 1 || o.Batch.Queue < 1) {
		bad("%d batches in flight and a queue of %d, where at least 1 is needed", o.Batch.InFlight, o.Batch.Queue)
	}
	if o.DenialMemory < 0 || o.DenialMemory > time.Second {
		bad("a denial memory of %s, where 0 to 1s is allowed", o.DenialMemory)
	}
	if o.DenialBytes != 0 && o.DenialBytes < MinDenialBytes {
		bad("a denial memory of %d bytes, where at least %d are needed", o.DenialBytes, MinDenialBytes)
	}
	if o.MaxClockSkew < 0 {
		bad("a clock skew of %s, where a positive one is needed, or 0 for %s", o.MaxClockSkew, bucket.DefaultMaxClockSkew)
	}
	return errors.Join(errs...)
}

// Close decides or fails the waiting requests, ends the store's goroutines and removes
// its metrics. It returns nil.
func (s *Store) Close() error {
	s.closed.Store(true)
	s.cancel()
	s.background.Wait()
	for _, n := range s.nodes() {
		n.close()
	}
	s.resends.Wait()
	s.metrics.unregister()
	return nil
}

// Ping takes from a limit of its own, so it needs all that a Take needs: it fails on a
// replica, which cannot write. If Redis refuses, its error wraps bucket.ErrRefused,
// like that of Refusal.
func (s *Store) Ping(ctx context.Context) error {
	// Each ping uses another tag, far from the last one: one node that is down is not
	// the whole cluster.
	const golden = 0x9e3779b9 // the golden ratio of 2^32
	far := s.pings.Add(1) * golden
	tag := int(uint64(far) * uint64(len(s.tags)) >> 32)
	return s.explain(s.nodeOf(tag).address, s.ping(ctx, tag))
}

func (s *Store) ping(ctx context.Context, tag int) error {
	r := s.ownRequest(pingLimit, "~ping", tag)
	s.alone(r).send(ctx)
	return r.Err
}

// ownRequest returns a take of 1 from a limit of the store's own, by a key of each of
// the tags.
func (s *Store) ownRequest(l *bucket.Limit, name string, tags ...int) *request {
	r := newRequest()
	r.Mode, r.tag = script.Take, tags[0]
	for _, tag := range tags {
		// No key of a caller's limit begins with a tilde after the tag.
		key := []byte(s.heads[tag] + name)
		r.Hits = append(r.Hits, bucket.Hit{Limit: l, Key: key, Cost: 1})
		r.Hashes = append(r.Hashes, maphash.Bytes(s.seed, key))
	}
	r.Decisions = make([]bucket.Decision, len(r.Hits))
	return r
}

// pingLimit has the shortest period, so that its key expires at once.
var pingLimit = neverReached(bucket.MinPeriod)

// Take implements bucket.Store. It fails when ctx ends; a caller who sends to an idle
// node then returns only with the reply, or after the timeout. Redis has the timeout,
// or four fifths of the time until the deadline of ctx if that is less. If Redis does
// not answer by then, or answers with an error, the fallback decides. Then Take fails
// if there is no fallback, or if a limit asks for that.
func (s *Store) Take(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	if len(hits) != len(decisions) {
		return errLength
	}
	if len(hits) == 0 {
		return nil
	}
	return s.take(s.begin(ctx, script.Take, hits), decisions)
}

// take decides a request to take, and ends its use.
func (s *Store) take(r *request, decisions []bucket.Decision) (err error) {
	if s.isKnownDenied(r) {
		s.end(r, decisions)
		return nil
	}
	if r.isSpread {
		err = s.takeAcross(r)
	} else {
		one := [...]*request{r}
		err = s.ask(r.ctx, r.start, r.deadline, one[:])
		r = one[0]
	}
	s.endTake(r, decisions, err)
	return err
}

// isKnownDenied reports whether a take is denied without asking Redis, and has its
// decisions.
func (s *Store) isKnownDenied(r *request) (isKnown bool) {
	if r.question, isKnown = s.denials.known(r.start, &r.Group); isKnown {
		s.metrics.knownDenials.Inc()
		if r.traced != nil {
			r.traced.Known = true
		}
	}
	return isKnown
}

// endTake ends a take that was decided, or that nobody decided because of err.
func (s *Store) endTake(r *request, decisions []bucket.Decision, err error) {
	if r.late != nil {
		s.settleLate(r, err == nil && bucket.GroupAllowed(r.Hits, r.Decisions))
	}
	s.countDegraded(r)
	s.denials.learn(r.question, &r.Group, err == nil)
	s.end(r, decisions)
}

// NodeOf returns what decides hits, as far as is known: TakeMany may take them with others
// of the same node. It is nil if their keys are on several hash tags of a cluster.
func (s *Store) NodeOf(hits []bucket.Hit) any {
	tag := 0
	for i := range hits {
		if !s.isCluster {
			break
		}
		of := s.tags.Of(hits[i].Place)
		if i > 0 && of != tag {
			return nil
		}
		tag = of
	}
	return s.nodeOf(tag)
}

// TakeMany is Take for several requests of one caller, each decided by itself. It returns
// when all are decided, so they should have one node.
func (s *Store) TakeMany(ctx context.Context, takes []bucket.Take) {
	requests, of := make([]*request, 0, len(takes)), make([]int, 0, len(takes))
	for i := range takes {
		r := s.begin(ctx, script.Take, takes[i].Hits)
		switch {
		case r.isSpread:
			takes[i].Err = s.take(r, takes[i].Decisions)
		case s.isKnownDenied(r):
			s.end(r, takes[i].Decisions)
		default:
			requests, of = append(requests, r), append(of, i)
		}
	}
	if len(requests) == 0 {
		return
	}
	_ = s.ask(ctx, requests[0].start, requests[0].deadline, requests) // each knows its own error
	for i, r := range requests {
		take := &takes[of[i]]
		take.Err = r.by.failure()
		s.endTake(r, take.Decisions, take.Err)
	}
}

var errLength = errors.New("redis: as many decisions as hits are needed")

// forgetDenials frees the memory of denials that have ended, even if nobody asks about
// them any more.
func (s *Store) forgetDenials() {
	tick := time.NewTicker(s.denials.lasts)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
			s.denials.freeEnded(time.Now())
		}
	}
}

// Check implements bucket.Store; it fails like Take. On a cluster it checks the hash
// tags at the same time, each by itself.
func (s *Store) Check(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	if len(hits) != len(decisions) {
		return errLength
	}
	r := s.begin(ctx, script.Check, hits)
	pieces := s.split(r, script.Check)
	err := s.ask(ctx, r.start, r.deadline, pieces)
	scatter(pieces, r.Decisions)
	s.recycleAll(pieces)
	s.end(r, decisions) // degraded answers are counted when they are taken
	return err
}

// GiveBack implements bucket.Store. It asks Redis even when ctx has ended. What
// the fallback took is given back to the fallback.
func (s *Store) GiveBack(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	if len(hits) != len(decisions) {
		return errLength
	}
	r := s.begin(context.WithoutCancel(ctx), script.GiveBack, hits)
	for i, j := range r.merged {
		r.Decisions[j] = decisions[i]
	}
	pieces := s.split(r, script.GiveBack)
	allowed := bucket.GroupAllowed(r.Hits, r.Decisions)
	charged := s.choose(pieces, script.GiveBack, func(h *bucket.Hit, d *bucket.Decision) bool {
		return bucket.Charged(h, d, allowed)
	})
	s.recycleAll(pieces)
	// Each of these hits was charged, so each is given back, whatever the roles of the
	// others in its piece.
	putQuotasAside(charged)
	for _, p := range charged {
		if p.Decisions[0].Degraded {
			p.by = decidedBy{unasked, errTakenElsewhere}
		}
	}
	err := s.ask(r.ctx, r.start, r.deadline, charged)
	scatter(charged, r.Decisions)
	s.recycleAll(charged)
	s.denials.forgetHashes(r.Hashes)
	s.end(r, decisions)
	return err
}
