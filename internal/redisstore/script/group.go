package script

import (
	"bytes"
	"hash/maphash"
	"math/bits"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Group is the hits of a request, which the script decides as a whole.
type Group struct {
	Mode Mode
	// Hits are at least one, with keys as in Redis. No two have the same key and
	// holder.
	Hits []bucket.Hit
	// Hashes are those of the hits' keys, by maphash.Bytes and one seed, so that
	// callers cannot choose keys with equal hashes.
	Hashes []uint64
	// Decisions are the result, one for each hit. A give-back needs those of
	// the take.
	Decisions []bucket.Decision
	// Named is nil unless the request is a take with an ID, or a Settle. A Check with it
	// is as one without.
	Named *Named
	// Err is ErrUnreadable, ErrElsewhen, or what the user of the request has set.
	Err error
	// Elsewhen goes with ErrElsewhen; 0 in requests that had no such error.
	Elsewhen int64

	// same is the next of the equal requests of a command, in order of arrival, and
	// last is the last of them, which only the first knows.
	same, last *Group
}

// Name gives a request the ID of its take, or of what it settles. Hashes of keys are by
// seed.
func (r *Group) Name(id string, lasts time.Duration, seed maphash.Seed) {
	r.Named = &Named{ID: id, Lasts: lasts, Places: make([]BillPlace, len(r.Hits)), Settled: make([]bucket.Settled, len(r.Hits))}
	for i := range r.Hits {
		r.Named.Places[i] = BillPlace{
			Key:   hashed(bucket.AppendBill(nil, r.Hits[i].Key, id), seed),
			Reset: hashed(bucket.AppendReset(nil, r.Hits[i].Key), seed),
		}
	}
}

// CopyNamed gives a request that gets hit i of another also what belongs to it by name.
func (r *Group) CopyNamed(from *Group, i int) {
	if from.Named == nil {
		return
	}
	if r.Named == nil {
		r.Named = &Named{ID: from.Named.ID, Lasts: from.Named.Lasts}
	}
	r.Named.Places = append(r.Named.Places, from.Named.Places[i])
	r.Named.Settled = append(r.Named.Settled, bucket.Settled{})
}

// Mode is what the script does with a request.
type Mode uint8

const (
	Check    Mode = iota // decide as if to take, charge nothing
	Take                 // decide and charge
	GiveBack             // return what was taken at the moments in decisions
	// takeByRole is the script's mode for a take of several hits that are not all
	// enforced. One hit alone is charged or not whatever its role, and for a Check the
	// role does not matter.
	takeByRole
	// byHolder is added to the mode in the script's input if hits of the request may
	// name holders.
	byHolder
	// reserves is added to the mode in the script's input if a take has an ID.
	reserves Mode = 8
	// Settle changes what an ID has charged.
	Settle Mode = 16
	// Pause starts the pauses of limits that deny, and charges nothing. No hit is
	// bucket.Limit.ChargedAnyway.
	Pause Mode = 32
)

// hash returns a hash that equal requests share, and others hardly ever. Since no
// caller knows the hashes of keys, none can choose costs whose requests share a hash.
func (r *Group) hash(seed maphash.Seed) uint64 {
	all := uint64(r.Mode)
	for i, hash := range r.Hashes {
		// The golden ratio of 2^64. It is odd, so that no bit of the hash so far is
		// lost; and the upper half of the product brings all bits to the lower ones,
		// which choose a place in a table.
		const mix = 0x9e3779b97f4a7c15
		if holder := r.Hits[i].Holder; holder != "" {
			hash ^= maphash.String(seed, holder)
		}
		high, low := bits.Mul64(hash^uint64(r.Hits[i].Cost), mix)
		all = all*mix ^ high ^ low
	}
	return all
}

// equals reports whether two requests ask for the same. A give-back equals no other,
// since it names its own moments; nor does a request with holders or an ID, since few
// share a name.
func (r *Group) equals(other *Group) bool {
	return r.Mode == other.Mode && r.Mode != GiveBack && r.Named == nil && other.Named == nil && EqualHits(r.Hits, other.Hits) && !r.namesHolders()
}

func (r *Group) namesHolders() bool {
	return slices.ContainsFunc(r.Hits, func(h bucket.Hit) bool { return h.Holder != "" })
}

// EqualHits reports whether these are the same hits in the same order. Places
// are not compared: they follow from the keys.
func EqualHits(as, bs []bucket.Hit) bool {
	if len(as) != len(bs) {
		return false
	}
	for i := range as {
		a, b := &as[i], &bs[i]
		if a.Limit != b.Limit || a.Cost != b.Cost || a.Role != b.Role || a.Holder != b.Holder || !bytes.Equal(a.Key, b.Key) {
			return false
		}
	}
	return true
}

// hasHolders reports whether some of the limits have holders.
func (r *Group) hasHolders() bool {
	return slices.ContainsFunc(r.Hits, func(h bucket.Hit) bool { return h.Limit.Algorithm.HasHolders() })
}

// hasRoles reports whether the roles of the hits matter to what is charged.
func (r *Group) hasRoles() bool {
	return len(r.Hits) > 1 && slices.ContainsFunc(r.Hits, func(h bucket.Hit) bool { return h.Role != bucket.Enforced })
}

// Named is what a request has besides if it is a take with an ID, or a Settle. Nothing of
// it changes but Settled.
type Named struct {
	ID string
	// Lasts is that of the reservation, if it is a take.
	Lasts time.Duration
	// Places are where the hits' bills are.
	Places []BillPlace
	// Settled are the result of a Settle.
	Settled []bucket.Settled
}

// BillPlace is where the bill of a hit is kept: its key, and the key that says when the
// hit's state was reset.
type BillPlace struct{ Key, Reset HashedKey }

// HashedKey is a key as in Redis, and its hash as in Group.Hashes.
type HashedKey struct {
	Text []byte
	Hash uint64
}

func hashed(key []byte, seed maphash.Seed) HashedKey { return HashedKey{key, maphash.Bytes(seed, key)} }
