// Package redisstore keeps the states of limits in Redis: one server, a master
// behind Sentinel, or Redis Cluster, shared by any number of daemons.
//
// One script decides (lua/). Every key carries one of a fixed number of hash
// tags, so that hits of equal places share a slot. On one server, or behind
// Sentinel, a request is one call and atomic whatever it holds; on a cluster
// one of several tags is checked everywhere first and taken only then.
package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Options of a Store.
type Options struct {
	Mode Mode
	// Addresses are host:port of the server, the Sentinels, or some nodes of
	// the cluster.
	Addresses []string
	// Database is 0 on a cluster.
	Database int
	Username string
	// Password is asked at each new connection; nil means none.
	Password       func() (string, error)
	SentinelMaster string
	// TLS gives the configuration of a connection to addr, host:port; nil means
	// that there is none.
	TLS func(addr string) (*tls.Config, error)
	// Prefix begins every key; it holds no brace.
	Prefix string
	// HashTags is over how many hash tags keys are spread, 1 to 16384. All
	// daemons that share keys must agree on it.
	HashTags int
	// Timeout bounds a Take or GiveBack. A Take over several hash tags of a
	// cluster that lost a race may take as long again to give back what it
	// took.
	Timeout time.Duration
	// Clock replaces the clock of Redis, in microseconds since the Unix
	// epoch. It is for tests; production leaves it nil.
	Clock func() int64
}

// Store is a bucket.Store in Redis.
type Store struct {
	client  redis.UniversalClient
	sharded bool
	tags    tags
	heads   []string // of keys, by tag
	timeout time.Duration
	clock   func() int64
	pings   atomic.Uint32
	races   atomic.Int64
}

// Stats are counts since the start.
type Stats struct {
	// Races is how many requests over several hash tags of a cluster were
	// allowed by the check and then not by every take; what they had taken
	// was given back.
	Races int64
}

// Stats returns the counts.
func (s *Store) Stats() Stats { return Stats{Races: s.races.Load()} }

var _ bucket.Store = (*Store)(nil)

// New returns a store for the options' servers. It does not connect yet; an
// error is one of the options.
func New(o Options) (*Store, error) {
	if o.HashTags < 1 || o.HashTags > clusterSlots {
		return nil, fmt.Errorf("redis: %d hash tags, where 1 to %d are allowed", o.HashTags, clusterSlots)
	}
	if strings.ContainsAny(o.Prefix, "{}") {
		return nil, fmt.Errorf("redis: the prefix %q holds a brace, which would break the hash tags", o.Prefix)
	}
	if o.Timeout <= 0 {
		return nil, fmt.Errorf("redis: a timeout of %s, where a positive one is needed", o.Timeout)
	}
	c, err := client(o)
	if err != nil {
		return nil, err
	}
	s := &Store{
		client:  c,
		sharded: o.Mode == Cluster,
		tags:    newTags(o.HashTags),
		timeout: o.Timeout,
		clock:   o.Clock,
	}
	for _, tag := range s.tags {
		s.heads = append(s.heads, o.Prefix+"{"+tag+"}:")
	}
	return s, nil
}

// Close closes all connections.
func (s *Store) Close() error { return s.client.Close() }

// Ping takes from a limit of its own, so it needs all that a Take does: a
// replica, which only reads, does not answer it.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	// Another tag each time: one node that is down is not the whole cluster.
	head := s.heads[int(s.pings.Add(1)-1)%len(s.heads)]
	ping := &group{mode: take, hits: []bucket.Hit{{Limit: pingLimit, Cost: 1}}, decisions: make([]bucket.Decision, 1)}
	// No key of a limit begins with a tilde.
	return s.run(ctx, ping, func(bucket.Hit) string { return head + "~ping" })
}

// pingLimit is never reached, and forgotten at once.
var pingLimit = func() *bucket.Limit {
	l, err := bucket.NewLimit(bucket.Spec{Algorithm: bucket.FixedWindow, Requests: bucket.MaxRequests, Period: bucket.MinPeriod})
	if err != nil {
		panic(err) // the numbers stand above
	}
	return l
}()

// key is the key of a hit in Redis.
func (s *Store) key(h bucket.Hit) string {
	head := s.heads[s.tags.of(h.Place)]
	return head + string(h.Key)
}

// Take implements bucket.Store. It fails when ctx ends, when Redis does not
// answer within the timeout, and when it answers with an error.
func (s *Store) Take(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	if len(hits) != len(decisions) {
		return errLength
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	merged, of := bucket.Merge(nil, nil, hits)
	parts := s.split(take, merged)
	all := make([]bucket.Decision, len(merged))
	var err error
	if len(parts) > 1 {
		err = s.takeAcross(ctx, parts, all)
	} else {
		err = s.runAll(ctx, parts)
		scatter(parts, all)
	}
	for i, j := range of {
		decisions[i] = all[j]
	}
	return err
}

var errLength = errors.New("redis: as many decisions as hits are needed")

// GiveBack implements bucket.Store. It is sent even when ctx has ended.
func (s *Store) GiveBack(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	if len(hits) != len(decisions) {
		return errLength
	}
	merged, of := bucket.Merge(nil, nil, hits)
	all := make([]bucket.Decision, len(merged))
	for i, j := range of {
		all[j] = decisions[i]
	}
	parts := s.split(giveBack, merged)
	gather(parts, all)
	allowed := bucket.Allowed(decisions)
	parts = choose(parts, giveBack, func(h bucket.Hit) bool { return bucket.Charged(h, allowed) })
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
	defer cancel()
	return s.runAll(ctx, parts)
}

// part is what one call can decide of a group: all of it, or the hits of one
// hash tag on a cluster.
type part struct {
	group
	of []int // where each hit stands in the whole
}

func (p *part) add(h bucket.Hit, of int, d bucket.Decision) {
	p.hits = append(p.hits, h)
	p.of = append(p.of, of)
	p.decisions = append(p.decisions, d)
}

func (s *Store) split(m mode, hits []bucket.Hit) []*part {
	byTag := make(map[int]*part, 1)
	var parts []*part
	for i, h := range hits {
		tag := 0
		if s.sharded {
			tag = s.tags.of(h.Place)
		}
		p := byTag[tag]
		if p == nil {
			p = &part{group: group{mode: m}}
			byTag[tag] = p
			parts = append(parts, p)
		}
		p.add(h, i, bucket.Decision{})
	}
	return parts
}

// runAll runs every part, all at the same time, and returns the first error.
func (s *Store) runAll(ctx context.Context, parts []*part) error {
	if len(parts) == 1 {
		parts[0].err = s.run(ctx, &parts[0].group, s.key)
		return parts[0].err
	}
	var wait sync.WaitGroup
	for _, p := range parts {
		wait.Go(func() { p.err = s.run(ctx, &p.group, s.key) })
	}
	wait.Wait()
	for _, p := range parts {
		if p.err != nil {
			return p.err
		}
	}
	return nil
}

// run decides one group. keyOf gives the key of a hit.
func (s *Store) run(ctx context.Context, g *group, keyOf func(bucket.Hit) string) error {
	groups := []*group{g}
	reply, err := s.call(ctx, newBatch(groups, keyOf))
	if err != nil {
		return err
	}
	if err := decode(reply, groups); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	if g.err != nil {
		return fmt.Errorf("redis: %w", g.err)
	}
	return nil
}

// tryAgainAfter is how long a call waits for a slot on the move.
const tryAgainAfter = 5 * time.Millisecond

// call sends a batch to the script. It sends it again only when Redis said
// that it did not run.
func (s *Store) call(ctx context.Context, b batch) ([]any, error) {
	clock := ""
	if s.clock != nil {
		clock = strconv.FormatInt(s.clock(), 10)
	}
	args := make([]any, 0, 6+len(b.keys))
	args = append(args, "evalsha", scriptSHA, len(b.keys))
	args = append(append(args, b.keys...), clock, b.limits, b.input)
	for {
		cmd := once{redis.NewCmd(ctx, args...)}
		_ = s.client.Process(ctx, cmd) // cmd has the error too
		reply, err := cmd.Slice()
		switch {
		case err == nil:
			return reply, nil
		case redis.HasErrorPrefix(err, "NOSCRIPT") && args[0] == "evalsha":
			args[0], args[1] = "eval", script
		case redis.HasErrorPrefix(err, "TRYAGAIN"):
			select {
			case <-time.After(tryAgainAfter):
			case <-ctx.Done():
				return nil, fmt.Errorf("redis: %w", err)
			}
		default:
			s.doubtTopology(ctx, err)
			return nil, fmt.Errorf("redis: %w", err)
		}
	}
}

// doubtTopology looks for a cluster's new masters after an error that is not a
// server's answer: the client does so only when a server tells it to.
func (s *Store) doubtTopology(ctx context.Context, err error) {
	var answer redis.Error
	if c, ok := s.client.(*redis.ClusterClient); ok && !errors.As(err, &answer) {
		c.ReloadState(ctx)
	}
}
