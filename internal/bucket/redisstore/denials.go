package redisstore

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/redisstore/script"
)

// denials remembers groups of hits that Redis denied, and denies them again
// without asking for as long as Redis would: until the first of their denied
// hits would be allowed, and no longer than the memory lasts, so that takes,
// refunds, give-backs and new numbers elsewhere are soon felt. Those that go
// through this store are felt at once.
//
// Only what stays a denial whatever others take is remembered: not a group
// with a refund, nor one with a charge that a denial does not stop, nor one
// with quotas. A limit without a say, of a hit Aside, denies nothing, but its
// own word on that hit is repeated too, and no longer than it holds. A group
// of more than maxDenialHits is not remembered: it costs more memory than it
// saves calls.
//
// A repeated decision says what Redis would say, with one exception: what a
// limit refilled meanwhile is not in what remains.
type denials struct {
	lasts  time.Duration
	now    func() time.Time
	seed   maphash.Seed
	shards [denialShards]denialShard

	// changes counts, by a hash of the key, what was taken from keys or returned
	// to them; a group is forgotten when one of its keys has changed since it
	// was asked about. Keys that share a count only make it forget more.
	changes [changeCounts]atomic.Uint32
}

const (
	denialShards = 16 // both are powers of two
	changeCounts = 1 << 16

	// maxDenialHits is how many hits a group may have to be remembered.
	maxDenialHits = 8
)

// denial is a group that was denied.
type denial struct {
	hits      []bucket.Hit
	decisions []bucket.Decision
	by        int       // the hit that is denied for the longest time
	changes   uint32    // of its keys, when it was asked about
	received  time.Time // when the denial came
	until     time.Time // when it ends at the latest
}

// question is what denials was asked about and does not know.
type question struct {
	asked   time.Time
	changes uint32
}

// newDenials returns a memory of about so many bytes for denials that it
// repeats for as long as lasts.
func newDenials(lasts time.Duration, bytes int, now func() time.Time) *denials {
	d := &denials{lasts: lasts, now: now, seed: maphash.MakeSeed()}
	for i := range d.shards {
		d.shards[i].init(lasts, bytes/denialShards)
	}
	return d
}

// known reports whether the hits are known to be denied, and fills in the
// decisions then. Otherwise Redis is asked, and learn is told what it says to
// the question.
func (d *denials) known(now time.Time, hits []bucket.Hit, decisions []bucket.Decision) (question, bool) {
	q := question{asked: now}
	var last *denial // by another of the hits each time
	for i := range hits {
		hash := d.hash(hits[i].Key)
		q.changes += d.changesOf(hash).Load()
		k := d.shard(hash).find(&hits[i], hash, q.asked)
		if k != nil && (last == nil || k.received.After(last.received)) && script.EqualHits(k.hits, hits) {
			last = k
		}
	}
	if last == nil || last.changes != q.changes {
		return q, false
	}
	last.tell(q.asked, decisions)
	return q, true
}

// learn is told what Redis decided about the hits of a question, or what was
// decided in its place; failed is whether there is no decision.
func (d *denials) learn(q question, hits []bucket.Hit, decisions []bucket.Decision, failed bool) {
	allowed := !failed && bucket.GroupAllowed(hits, decisions)
	d.countChanges(hits, decisions, failed, allowed)
	if failed || allowed || len(hits) > maxDenialHits {
		return
	}
	by, lasts := d.remembered(hits, decisions)
	if by < 0 {
		return
	}
	// Redis decided after it was asked, so until then it still denies.
	k := &denial{by: by, changes: q.changes, received: d.now(), until: q.asked.Add(lasts)}
	k.remember(hits, decisions)
	hash := d.hash(hits[by].Key)
	d.shard(hash).put(hash, k)
}

// remembered returns which hit a denied group is remembered by and for how
// long, or a negative number if the group is not to be remembered.
func (d *denials) remembered(hits []bucket.Hit, decisions []bucket.Decision) (by int, lasts time.Duration) {
	by, lasts = -1, d.lasts
	for i := range decisions {
		if decisions[i].Degraded || hits[i].Cost < 0 || hits[i].Limit.ChargedAnyway(hits[i].Cost) {
			return -1, 0
		}
		switch retry := decisions[i].RetryAfter; {
		case hits[i].Role > bucket.Enforced:
			return -1, 0 // the first of several quotas to end ends the denial
		case retry == 0:
			continue
		case retry != bucket.Never:
			lasts = min(lasts, retry)
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

// countChanges counts what a take changed, or may have changed where Redis did
// not decide it.
func (d *denials) countChanges(hits []bucket.Hit, decisions []bucket.Decision, failed, allowed bool) {
	for i := range hits {
		h := &hits[i]
		if failed || decisions[i].Degraded || h.Cost < 0 || bucket.Charged(h, &decisions[i], allowed) {
			d.changesOf(d.hash(h.Key)).Add(1)
		}
	}
}

// changed says that the keys of these hits changed, or may have. d may be nil.
func (d *denials) changed(hits []bucket.Hit) {
	if d == nil {
		return
	}
	for i := range hits {
		d.changesOf(d.hash(hits[i].Key)).Add(1)
	}
}

// forgetEnded lets go of denials that have ended, at the latest when it is
// called twice.
func (d *denials) forgetEnded() {
	now := d.now()
	for i := range d.shards {
		d.shards[i].forgetEnded(now)
	}
}

func (d *denials) hash(key []byte) uint64 { return maphash.Bytes(d.seed, key) }

func (d *denials) shard(hash uint64) *denialShard { return &d.shards[hash%denialShards] }

func (d *denials) changesOf(hash uint64) *atomic.Uint32 {
	return &d.changes[hash/denialShards%changeCounts]
}

// remember copies the hits, without their places, and the decisions.
func (k *denial) remember(hits []bucket.Hit, decisions []bucket.Decision) {
	size := 0
	for i := range hits {
		size += len(hits[i].Key)
	}
	text := make([]byte, 0, size)
	k.hits = make([]bucket.Hit, len(hits))
	k.decisions = make([]bucket.Decision, len(decisions))
	for i := range hits {
		h := &hits[i]
		start := len(text)
		text = append(text, h.Key...)
		k.hits[i] = bucket.Hit{Limit: h.Limit, Key: text[start:len(text):len(text)], Cost: h.Cost, Role: h.Role}
	}
	copy(k.decisions, decisions)
}

// tell writes what the group gets now.
func (k *denial) tell(now time.Time, decisions []bucket.Decision) {
	// What a caller is told to wait must be enough, so the time that the denial
	// was on its way does not count as passed.
	passed := now.Sub(k.received).Truncate(time.Microsecond)
	for i, d := range k.decisions {
		if d.RetryAfter > 0 {
			d.RetryAfter -= passed
		}
		d.ResetAfter = max(0, d.ResetAfter-passed)
		d.Wait = max(0, d.Wait-passed)
		d.At = 0 // nothing was taken that could be given back
		decisions[i] = d
	}
}
