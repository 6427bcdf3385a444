package redisstore

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// denials remembers groups of hits that Redis denied, and denies them again without
// asking, until the first of their denied hits might be allowed, and for no longer than
// lasts. Others may take meanwhile: the group stays denied. What this store gives back to
// one of the keys ends the denial at once, what another daemon gives back does not.
//
// So a group is remembered only if it stays denied whatever others take. It has no
// refund, no postpaid charge and no quota. It has no holder either, since a holder
// hardly ever comes again before the denial ends. A hit Aside denies nothing, but its
// decision is repeated too, and when that ends, so does the memory. A group of more
// than maxDenialHits is not remembered, since it costs more memory than it saves
// commands.
type denials struct {
	lasts  time.Duration
	clock  func(time.Time) time.Time
	seed   maphash.Seed // of the hashes of keys, which come with groups
	shards [denialShards]denialShard

	// returns counts, by a hash of the key, how often something was given back to a key,
	// or its state was deleted. A denial is repeated only while the counts of its keys are
	// those at the moment when Redis was asked. If keys share a count, the only effect is
	// that more is forgotten.
	returns [returnCounts]atomic.Uint32
}

const (
	denialShards = 16      // a power of two
	returnCounts = 1 << 12 // a power of two

	// maxDenialHits is how many hits a group may have to be remembered.
	maxDenialHits = 8
)

// question is one that denials could not answer, so it goes to Redis.
type question struct {
	asked   time.Time
	returns uint32 // the sum of the counts of its keys
}

// newDenials returns a memory of about this many bytes, which repeats a denial for as
// long as lasts. The hashes of keys have the seed. clock turns a time of this machine
// into the one that counts: the same, except in tests.
func newDenials(lasts time.Duration, bytes int, seed maphash.Seed, clock func(time.Time) time.Time) *denials {
	d := &denials{lasts: lasts, clock: clock, seed: seed}
	for i := range d.shards {
		d.shards[i].lasts, d.shards[i].maxBytes = lasts, bytes/denialShards/2
	}
	return d
}

// known reports whether the hits of a request are known to be denied, and if so writes
// the decisions. Otherwise the caller asks Redis, and passes its decisions to learn
// with the question. d may be nil.
func (d *denials) known(now time.Time, r *script.Group) (q question, isKnown bool) {
	if d == nil {
		return question{}, false
	}
	q.asked = d.clock(now)
	for _, hash := range r.Hashes {
		q.returns += d.returnsTo(hash).Load()
	}
	for _, hash := range r.Hashes {
		k := d.shard(hash).find(hash, q.asked)
		if k != nil && q.asked.Before(k.until) && k.returns == q.returns && script.EqualHits(k.hits, r.Hits) {
			k.repeat(q.asked, r.Decisions)
			return q, true
		}
	}
	return q, false
}

// learn remembers what Redis decided about the request of a question, if it is a denial
// that lasts. isDecided is false if it was not decided. A refund ends the denials of its
// key, even if it is unknown whether Redis has applied it. d may be nil.
func (d *denials) learn(q question, r *script.Group, isDecided bool) {
	if d == nil {
		return
	}
	for i := range r.Hits {
		if h := &r.Hits[i]; h.Cost < 0 && h.Holder == "" {
			d.returnsTo(r.Hashes[i]).Add(1)
		}
	}
	if !isDecided || len(r.Hits) > maxDenialHits || bucket.GroupAllowed(r.Hits, r.Decisions) {
		return
	}
	by, lasts := d.remembered(r.Hits, r.Decisions)
	if by < 0 {
		return
	}
	// Redis decided later than it was asked, so it denies until then at least.
	k := &denial{question: q, received: d.clock(time.Now()), until: q.asked.Add(lasts)}
	k.copyFrom(r)
	d.shard(r.Hashes[by]).put(r.Hashes[by], k)
}

// remembered returns the hit by which a denied group is to be remembered, and for how
// long. by is negative if the group is not to be remembered.
func (d *denials) remembered(hits []bucket.Hit, decisions []bucket.Decision) (by int, lasts time.Duration) {
	by, lasts = -1, d.lasts
	for i := range decisions {
		if decisions[i].Degraded || hits[i].Cost < 0 || hits[i].Holder != "" || hits[i].Limit.ChargedAnyway(hits[i].Cost) {
			return -1, 0
		}
		switch retry := decisions[i].RetryAfter; {
		case hits[i].Role > bucket.Enforced:
			return -1, 0 // it ends with the first of several quotas
		case retry == 0:
			continue
		case retry == bucket.Unknown:
			return -1, 0
		case retry != bucket.Never:
			lasts = min(lasts, retry)
		case decisions[i].ResetAfter > 0: // of this window
			lasts = min(lasts, decisions[i].ResetAfter)
		}
		if hits[i].Role == bucket.Aside {
			continue
		}
		if by < 0 || decisions[i].RetryAfter == bucket.Never || decisions[i].RetryAfter > decisions[by].RetryAfter {
			by = i
		}
	}
	return by, lasts
}

// forgetHashes forgets the denials of the keys with these hashes, also those that are on
// their way. d may be nil.
func (d *denials) forgetHashes(hashes []uint64) {
	if d == nil {
		return
	}
	for _, hash := range hashes {
		d.returnsTo(hash).Add(1)
	}
}

// forget is forgetHashes for keys as in Redis. d may be nil.
func (d *denials) forget(keys []string) {
	if d == nil {
		return
	}
	for _, key := range keys {
		d.returnsTo(maphash.String(d.seed, key)).Add(1)
	}
}

func (d *denials) shard(hash uint64) *denialShard { return &d.shards[hash%denialShards] }

func (d *denials) returnsTo(hash uint64) *atomic.Uint32 {
	return &d.returns[hash/denialShards%returnCounts]
}
