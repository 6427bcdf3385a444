package redisstore

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// denials remembers groups of hits that Redis denied, and denies them again without
// asking, until the first of their denied hits would be allowed. No denial is
// remembered for longer than lasts, so that refunds, give-backs and new numbers through
// other daemons soon take effect. Those through this store take effect at once.
//
// A group is remembered only if it stays denied whatever others take. So it has no
// refund, no postpaid charge and no quota. It has no holder either, since a holder
// hardly ever comes again before the denial ends. A hit Aside denies nothing, but its
// decision is repeated too, and when that ends, so does the memory. A group of more
// than maxDenialHits is not remembered, since it costs more memory than it saves
// commands.
//
// A repeated decision says what Redis would say, with one exception: Remaining lacks
// what a limit has refilled since.
type denials struct {
	lasts  time.Duration
	clock  func(time.Time) time.Time
	seed   maphash.Seed // of the hashes of keys, which come with groups
	shards [denialShards]denialShard

	// changes counts, by a hash of the key, how often something was taken from a key or
	// given back to it, or its state was forgotten. A denial is forgotten when the
	// counts of its keys have changed since Redis was asked. If keys share a count, the
	// only effect is that more is forgotten.
	changes [changeCounts]atomic.Uint32
	// spell is odd while changes are counted, and goes up when that begins or ends. It
	// ends when nothing that can be remembered has been denied for quietFor, since to
	// count costs each take some 2 %, and begins with the next denial. A denial is told
	// only in the spell in which Redis was asked about it, if that is odd: all changes
	// since then were counted, since each looks at the spell after it was made.
	spell  atomic.Uint32
	denied atomic.Bool // whether something was, since forgetEnded last looked
	quiet  time.Time   // when forgetEnded last found that something was
}

const (
	denialShards = 16      // a power of two
	changeCounts = 1 << 16 // a power of two

	// quietFor is how long nothing is denied before changes are no longer counted: far
	// longer than denials last.
	quietFor = 10 * time.Second

	// maxDenialHits is how many hits a group may have to be remembered.
	maxDenialHits = 8
)

// denial is a group that was denied.
type denial struct {
	counted
	hits      []bucket.Hit
	decisions []bucket.Decision
	by        int       // the index of the hit denied for the longest time
	received  time.Time // when the reply came
	until     time.Time // when the denial ends at the latest
}

// question is one that denials could not answer, so it goes to Redis.
type question struct {
	asked time.Time
	counted
}

// counted is what was counted when Redis was asked: the counts of the keys, if the spell is
// one in which changes are counted.
type counted struct{ spell, changes uint32 }

// newDenials returns a memory of about this many bytes, which repeats a denial for as
// long as lasts. The hashes of keys have the seed. clock turns a time of this machine
// into the one that counts: the same, except in tests.
func newDenials(lasts time.Duration, bytes int, seed maphash.Seed, clock func(time.Time) time.Time) *denials {
	d := &denials{lasts: lasts, clock: clock, seed: seed, quiet: time.Now()}
	d.spell.Store(1)
	for i := range d.shards {
		d.shards[i].init(lasts, bytes/denialShards)
	}
	return d
}

// known reports whether the hits of a request are known to be denied, and if so writes
// the decisions. Otherwise the caller asks Redis, and passes its decisions to learn
// with the question. d may be nil.
func (d *denials) known(now time.Time, r *script.Group) (question, bool) {
	if d == nil {
		return question{}, false
	}
	q := question{asked: d.clock(now), counted: counted{spell: d.spell.Load()}}
	if !isCounted(q.spell) {
		return q, false
	}
	var last *denial // each of the hits may have one
	for i, hash := range r.Hashes {
		q.changes += d.changesOf(hash).Load()
		k := d.shard(hash).find(&r.Hits[i], hash, q.asked)
		if k != nil && (last == nil || k.received.After(last.received)) && script.EqualHits(k.hits, r.Hits) {
			last = k
		}
	}
	if last == nil || last.counted != q.counted {
		return q, false
	}
	last.tell(q.asked, r.Decisions)
	return q, true
}

// learn notes what Redis, or the fallback in its place, decided about the request of a
// question; failed says that there is no decision. d may be nil.
func (d *denials) learn(q question, r *script.Group, failed bool) {
	if d == nil {
		return
	}
	allowed, spell := !failed && bucket.GroupAllowed(r.Hits, r.Decisions), d.spell.Load()
	if isCounted(spell) {
		d.countChanges(r, failed, allowed)
	}
	if failed || allowed || len(r.Hits) > maxDenialHits {
		return
	}
	by, lasts := d.remembered(r.Hits, r.Decisions)
	if by < 0 {
		return
	}
	d.noteDenied(spell)
	if q.spell != spell || !isCounted(spell) {
		return // it would never be told
	}
	// Redis decided later than it was asked, so it denies until then at least.
	k := &denial{counted: q.counted, by: by, received: d.clock(time.Now()), until: q.asked.Add(lasts)}
	k.remember(r.Hits, r.Decisions)
	d.shard(r.Hashes[by]).put(r.Hashes[by], k)
}

// noteDenied notes that something was denied, and begins to count changes if the spell
// is one in which they are not counted. It does so in this order, so that forgetEnded does
// not end a spell that has just begun.
func (d *denials) noteDenied(spell uint32) {
	if !d.denied.Load() {
		d.denied.Store(true)
	}
	if !isCounted(spell) {
		d.spell.CompareAndSwap(spell, spell+1)
	}
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
			return -1, 0 // it ends at a time that nobody knows
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

// countChanges counts the keys that a take has changed, or may have changed if
// Redis did not decide it.
func (d *denials) countChanges(r *script.Group, failed, allowed bool) {
	for i := range r.Hits {
		h, decision := &r.Hits[i], &r.Decisions[i]
		if failed || decision.Degraded || h.Cost < 0 || bucket.Charged(h, decision, allowed) {
			d.changesOf(r.Hashes[i]).Add(1)
		}
	}
}

// changed notes that the keys with these hashes have changed, or may have changed. d
// may be nil.
func (d *denials) changed(hashes []uint64) {
	if d == nil || !isCounted(d.spell.Load()) {
		return
	}
	for _, hash := range hashes {
		d.changesOf(hash).Add(1)
	}
}

// forget does the same as changed, for keys whose states were deleted. d may be nil.
func (d *denials) forget(keys []string) {
	if d == nil || !isCounted(d.spell.Load()) {
		return
	}
	for _, key := range keys {
		d.changesOf(maphash.String(d.seed, key)).Add(1)
	}
}

// forgetEnded frees denials that have ended, at its second call at the latest, and ends
// the spell if nothing has been denied for quietFor. It is called by one goroutine.
func (d *denials) forgetEnded(at time.Time) {
	now := d.clock(at)
	for i := range d.shards {
		d.shards[i].forgetEnded(now)
	}
	spell := d.spell.Load() // before denied, see noteDenied
	if d.denied.Load() && d.denied.Swap(false) {
		d.quiet = at
	}
	if isCounted(spell) && at.Sub(d.quiet) >= quietFor {
		d.spell.Store(spell + 1) // nobody else ends a spell
	}
}

func isCounted(spell uint32) bool { return spell%2 == 1 }

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

// tell writes the group's decisions as of now.
func (k *denial) tell(now time.Time, decisions []bucket.Decision) {
	// A caller that waits as long as it was told must then be allowed, so time counts
	// from when the reply came, not from when Redis decided.
	passed := now.Sub(k.received).Truncate(time.Microsecond)
	for i, d := range k.decisions {
		if d.RetryAfter > 0 {
			d.RetryAfter -= passed
		}
		d.ResetAfter = max(0, d.ResetAfter-passed)
		d.Wait = max(0, d.Wait-passed)
		d.RememberedAt = d.At + passed.Microseconds()
		d.At, d.Seq = 0, 0 // nothing was taken that could be given back
		decisions[i] = d
	}
}
