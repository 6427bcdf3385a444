// Package redisstore keeps the states of limits in Redis: one server, a master
// behind Sentinel, or Redis Cluster, shared by any number of daemons.
//
// One script decides (lua/). Every key carries one of a fixed number of hash
// tags, so that hits of equal places share a slot. On one server, or behind
// Sentinel, a request is one call and atomic whatever it holds; on a cluster
// one of several tags is checked everywhere first and taken only then.
//
// A request goes through these pieces, in this order:
//
//	denials    answers at once what Redis just denied
//	across     asks several hash tags of a cluster so that a denial is free
//	breaker    turns away what would wait for a node that does not answer
//	batcher    gathers what is asked of a node while its last batch is away
//	coalesce   sends equal groups of a batch as one line
//	pipeline   sends a batch to the script and reads the replies
//	fallback   answers where Redis did not
//
// What a Store promises is the same without denials (DenialMemory 0), batches
// and their lines (the zero Batch), and hash tags to ask across (HashTags 1).
// Without a fallback, what Redis does not decide fails.
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
	"github.com/ratelimitd/ratelimitd/internal/bucket/fallback"
	"github.com/ratelimitd/ratelimitd/internal/bucket/redisstore/script"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
)

// Options of a Store.
type Options struct {
	// HashTags is over how many hash tags keys are spread, 1 to 16384. All
	// daemons that share keys must agree on it.
	HashTags int
	// Batch says how requests travel together; the zero Batch sends each alone.
	Batch Batch
	// DenialMemory is how long a denial is repeated without asking Redis; 0 to
	// a second.
	DenialMemory time.Duration
	// DenialBytes is how many bytes the denials that are repeated take at most,
	// at least MinDenialBytes; 0 means DefaultDenialBytes.
	DenialBytes int
	// MaxClockSkew is how far ahead of Redis's clock a state may be. One that is
	// further was written by a wrong clock, and goes on from now. 0 means
	// bucket.DefaultMaxClockSkew.
	MaxClockSkew time.Duration
	// Fallback answers for what Redis does not decide; nil: such a call fails.
	// It belongs to the caller.
	Fallback *fallback.Fallback
	// Metrics is where the store's metrics are registered; nil means nowhere.
	Metrics prometheus.Registerer
	// Log is told when a node stops answering, refuses, or answers again; nil
	// means nobody.
	Log *slog.Logger
	// Clock replaces the clock of Redis, in microseconds since the Unix
	// epoch. It is for tests; production leaves it nil.
	Clock func() int64
}

// The bytes of known denials: the default, and the least that is of use.
const (
	DefaultDenialBytes = 16 << 20
	MinDenialBytes     = 1 << 20
)

// Batch bounds what travels to one node together.
type Batch struct {
	// Size is how many hits are in a batch at most; a request with more goes
	// alone. 0 and 1 mean that every one does, once there is a connection: as
	// many are on their way as there may be connections, whatever InFlight says.
	Size int
	// InFlight is how many batches are on their way at most; at least 1.
	InFlight int
	// Queue is how many requests wait for a batch at most; at least 1, or 0
	// for no bound where each goes alone.
	Queue int
}

// bounds are those of a batcher.
func (b Batch) bounds() Batch {
	if b.Size > 1 {
		return b
	}
	if b.Queue == 0 {
		b.Queue = math.MaxInt
	}
	return Batch{Size: 1, InFlight: redisconn.PoolPerNode, Queue: b.Queue}
}

// Store is a bucket.Store in Redis.
type Store struct {
	redis     *redisconn.Conn
	isCluster bool         // a command then has keys of one tag
	seed      maphash.Seed // of the hashes in batches
	tags      script.Tags
	heads     []string // of keys, by tag
	timeout   time.Duration
	batch     Batch
	denials   *denials           // nil: off
	fallback  *fallback.Fallback // nil: none
	clock     func() int64
	skew      string // the script's argument
	metrics   *metrics
	log       *slog.Logger
	pings     atomic.Uint32

	requests, parts sync.Pool

	topology       atomic.Pointer[topology]
	topologyDoubts chan struct{} // has an element when the topology may be wrong
	closed         atomic.Bool
	ctx            context.Context // ends what is in the background
	end            context.CancelFunc
	background     sync.WaitGroup // of followTopology and forgetDenials
	resends        sync.WaitGroup // of resend, which only nodes begin
}

var _ bucket.Store = (*Store)(nil)

// New returns a store on servers that conn reaches; conn should load
// script.Source into them, or the first call to each sends it. A Take, Check or GiveBack takes no longer than the timeout of conn; a
// Take over several hash tags of a cluster that lost a race may take as long
// again to give back what it took. conn belongs to the caller, who closes it
// after the store. An error is one of the options.
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
		topologyDoubts: make(chan struct{}, 1),
	}
	s.ctx, s.end = context.WithCancel(context.Background())
	s.requests.New = func() any { return newRequest() }
	s.parts.New = func() any { return newPart() }
	for _, tag := range s.tags {
		s.heads = append(s.heads, conn.Prefix()+"{"+tag+"}:")
	}
	if o.DenialMemory > 0 {
		s.denials = newDenials(o.DenialMemory, cmp.Or(o.DenialBytes, DefaultDenialBytes), s.now)
		s.background.Go(s.forgetDenials)
	}
	s.metrics = newMetrics(o.Metrics, s)
	s.startTopology()
	return s, nil
}

// now is the time of what is remembered here about Redis.
func (s *Store) now() time.Time { return s.at(time.Now()) }

// at is now's time of what is remembered, which a test's clock replaces.
func (s *Store) at(now time.Time) time.Time {
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

// Close answers what waits.
func (s *Store) Close() error {
	s.closed.Store(true)
	s.end()
	s.background.Wait()
	for _, n := range s.nodes() {
		n.close()
	}
	s.resends.Wait()
	s.metrics.unregister()
	return nil
}

// Ping takes from a limit of its own, so it needs all that a Take does: a
// replica, which only reads, does not answer it. Where Redis refuses,
// bucket.ErrRefused is in the error, as in that of Refusal.
func (s *Store) Ping(ctx context.Context) error {
	// Another tag each time, far from the one before: one node that is down is
	// not the whole cluster.
	const golden = 0x9e3779b9 // of 2^32
	far := s.pings.Add(1) * golden
	tag := int(uint64(far) * uint64(len(s.tags)) >> 32)
	return s.explain(s.topology.Load().byTag[tag].address, s.ping(ctx, tag))
}

func (s *Store) ping(ctx context.Context, tag int) error {
	p := newPart()
	p.Mode, p.tag = script.Take, tag
	// No key of a limit begins with a tilde.
	p.add(bucket.Hit{Limit: pingLimit, Key: []byte(s.heads[tag] + "~ping"), Cost: 1}, 0, bucket.Decision{})
	newPipeline(s).run(ctx, nil, []*part{p})
	return p.Err
}

// pingLimit is forgotten at once.
var pingLimit = neverReached(bucket.MinPeriod)

// Take implements bucket.Store. It fails when ctx ends. When Redis does not
// answer within the timeout, or within four fifths of what is left until the
// deadline of ctx, or answers with an error, then the fallback answers, and it
// fails where there is none or where that is what a limit wants.
func (s *Store) Take(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	if len(hits) != len(decisions) {
		return errLength
	}
	r := s.begin(ctx, script.Take, hits)
	defer s.finish(r)
	err := s.take(r)
	r.copyDecisions(decisions)
	return err
}

var errLength = errors.New("redis: as many decisions as hits are needed")

func (s *Store) take(r *request) error {
	if s.denials == nil {
		return s.takeFromRedis(r)
	}
	question, known := s.denials.known(s.at(r.start), r.whole.Hits, r.whole.Decisions)
	if known {
		s.metrics.knownDenials.Inc()
		return nil
	}
	err := s.takeFromRedis(r)
	s.denials.learn(question, r.whole.Hits, r.whole.Decisions, err != nil)
	return err
}

// forgetDenials frees the memory of denials that have ended and that nobody asks
// about any more.
func (s *Store) forgetDenials() {
	tick := time.NewTicker(s.denials.lasts)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
			s.denials.forgetEnded()
		}
	}
}

func (s *Store) takeFromRedis(r *request) error {
	parts := s.split(r)
	defer s.recycle(parts)
	defer s.countDegraded(r)
	if r.isSpread {
		return s.takeAcross(r, parts)
	}
	err := s.runAll(r.ctx, r, r.start, r.deadline, parts)
	r.gather(parts)
	return err
}

// Check implements bucket.Store; it fails as Take does. On a cluster the hash
// tags are checked at the same time, each by itself.
func (s *Store) Check(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	if len(hits) != len(decisions) {
		return errLength
	}
	r := s.begin(ctx, script.Check, hits)
	defer s.finish(r)
	parts := s.split(r)
	defer s.recycle(parts)
	err := s.runAll(r.ctx, r, r.start, r.deadline, parts)
	s.countDegraded(r)
	r.gather(parts)
	r.copyDecisions(decisions)
	return err
}

// GiveBack implements bucket.Store. It is sent even when ctx has ended.
func (s *Store) GiveBack(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	if len(hits) != len(decisions) {
		return errLength
	}
	r := s.begin(context.WithoutCancel(ctx), script.GiveBack, hits)
	defer s.finish(r)
	for i, j := range r.of {
		r.whole.Decisions[j] = decisions[i]
	}
	parts := s.split(r)
	allowed := bucket.GroupAllowed(r.whole.Hits, r.whole.Decisions)
	charged := s.choose(parts, script.GiveBack, func(h *bucket.Hit, d *bucket.Decision) bool {
		return bucket.Charged(h, d, allowed)
	})
	s.recycle(parts)
	defer s.recycle(charged)
	// Each hit was charged, and a part of a group says nothing of its quotas.
	putQuotasAside(charged)
	for _, p := range charged {
		if p.Decisions[0].Degraded {
			p.cause = errTakenElsewhere
		}
	}
	err := s.runAll(r.ctx, r, r.start, r.deadline, charged)
	s.denials.changed(r.whole.Hits)
	return err
}
