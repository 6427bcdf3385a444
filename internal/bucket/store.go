package bucket

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
)

// Hit asks one limit for cost.
type Hit struct {
	Limit *Limit
	// Key is the key of the limit's state; AppendKey makes it. The store does not
	// keep the slice.
	Key []byte
	// Place chooses the hash tag of the key on a cluster, so that keys of equal
	// places are on one node: their hits are decided atomically. It is the
	// subject, or the value of the entry that a domain names as its hash_tag.
	Place []byte
	// Cost is what the request takes: 0 peeks, and a negative cost refunds. It
	// counts as at most MaxCost, and at least -MaxCost.
	Cost int64
	// Role says how the hit takes part in the decision on its group.
	Role Role
	// Holder names who takes, where that matters to the limit: 1 to MaxHolder bytes, see
	// HolderOf. It is empty for all other limits. The store does not keep the string.
	Holder string
}

const (
	// MaxHolderText is the length in bytes of the longest text that is a Holder as it is.
	MaxHolderText = 64
	// MaxHolder is the length in bytes of the longest Holder, a hash.
	MaxHolder = len(hashOfHolder) + 2*sha256.Size

	hashOfHolder = "sha256:"
)

// HolderOf returns the Holder that a caller names: its text, or in place of a longer one
// than MaxHolderText a hash, which is longer than all texts that stay as they are.
func HolderOf(text string) string {
	if len(text) <= MaxHolderText {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return hashOfHolder + hex.EncodeToString(sum[:])
}

// Demand returns what the hit asks of the state of its key. pending is how many hits
// before it in its group are about to hold a slot of that state, see Pending.
func (h *Hit) Demand(pending int64) Demand {
	return Demand{Cost: h.Cost, Holder: h.Holder, Pending: pending}
}

// IsReserved reports whether a hit of a take with an ID is billed: it took something, as
// Charged reports, that a settlement can change. Slots of holders are no costs.
func (h *Hit) IsReserved() bool {
	return h.Cost > 0 && h.Limit.Requests > 0 && !h.Limit.Algorithm.HasHolders()
}

// Pending counts, hit by hit of a merged group, who is about to hold a slot: by itself
// such a hit got a decision that takes one. The zero Pending has looked at no hit.
type Pending struct {
	seen int
	// byKey has the counts of the hits that were seen, if the group has many hits.
	byKey map[string]int64
}

// Before returns how many hits before the i-th are about to hold a slot of the same
// state; of a hit without a Holder it is 0. The decisions before the i-th are known
// and do not change any more. A Pending is asked about one group alone, and never
// about a hit before one that it was asked about.
func (p *Pending) Before(hits []Hit, decisions []Decision, i int) (n int64) {
	h := &hits[i]
	if h.Holder == "" {
		return 0
	}
	if len(hits) <= fewHits {
		for j := range i {
			if takesSlot(&hits[j], &decisions[j]) && bytes.Equal(hits[j].Key, h.Key) {
				n++
			}
		}
		return n
	}
	// To look at all hits before each hit takes a second for ten thousand of them.
	for ; p.seen < i; p.seen++ {
		if takesSlot(&hits[p.seen], &decisions[p.seen]) {
			if p.byKey == nil {
				p.byKey = make(map[string]int64)
			}
			p.byKey[string(hits[p.seen].Key)]++
		}
	}
	return p.byKey[string(h.Key)]
}

// takesSlot reports whether a hit that by itself got d is about to take a slot.
func takesSlot(h *Hit, d *Decision) bool {
	return h.Holder != "" && h.Cost > 0 && d.Allowed() && d.At != 0 && d.Renewal == NotRenewed
}

// ErrRefused says that a store answers but will not decide until someone changes
// a setting, of the store or of its caller: a wrong password, a missing right.
var ErrRefused = errors.New("refused")

// Take is one of several requests that a store decides at a time, each as Store.Take would:
// Err is why Decisions, which has the length of Hits, has nothing useful.
type Take struct {
	Hits      []Hit
	Decisions []Decision
	Err       error
}

// Store keeps the states of limits and decides hits. Its methods may be called
// concurrently.
type Store interface {
	// Take decides the hits of one request as a group, and writes what each of
	// them got to decisions, which has the length of hits.
	//
	// The group is allowed if every hit is; roles make exceptions, see GroupAllowed. Then
	// all allowed hits are charged; otherwise only those that are ChargedAnyway. Hits
	// with equal keys and holders are one hit, see Merge, and get the same decision. In a
	// denied group, the decision of a hit that by itself was allowed says so, and its
	// Remaining is without the charge.
	//
	// At and Seq of those decisions about one key that have an At are in the order in
	// which they were made, unless the clock of the store was set back in between. A
	// store may leave Seq out where no one asked for it.
	//
	// On an error decisions holds nothing useful. It is then unknown what was charged,
	// and Take must not be called again for the same request.
	Take(ctx context.Context, hits []Hit, decisions []Decision) error

	// Check decides a group exactly as Take would at this moment, and charges
	// nothing, whatever the Charging; so Remaining and ResetAfter are those
	// before any charge. It changes a state only to mend it, as every method
	// does. Its decisions are not for GiveBack, and no metric counts them as answers. On
	// an error decisions holds nothing useful.
	Check(ctx context.Context, hits []Hit, decisions []Decision) error

	// GiveBack takes back what an earlier Take with these decisions charged for
	// these hits, each as far as its charge still counts. It skips hits that took
	// nothing: peeks, refunds, and those of a denied group that are not ChargedAnyway.
	// For the others it replaces At and Seq in decisions by its own, as a Take does, so
	// decisions cannot be given back again. It is best effort: on an error some of it may
	// not be given back.
	GiveBack(ctx context.Context, hits []Hit, decisions []Decision) error

	// Reserve is Take for a caller who names the take. What it charges to a hit that
	// IsReserved becomes part of the bill of the ID beside the hit's state, by the very
	// write that charges; hits that are not charged leave no bill. A store without room
	// for a bill charges without one.
	Reserve(ctx context.Context, r Reservation, hits []Hit, decisions []Decision) error

	// Settle makes what the ID has charged to the key of each hit the hit's cost, and
	// writes what it did to settled, which has the length of hits. Hits are settled each
	// by itself, whatever their roles, and hits with equal keys as one with the sum of
	// their costs; a cost below 0 takes a take of that much out of the bill, and with the
	// last one the bill: for a caller who undoes what Reserve did. A hit without a bill is
	// left alone. See Bill.
	//
	// On an error it is unknown what was settled. A caller that names costs of 0 and more may
	// call it again: the last call counts.
	Settle(ctx context.Context, id string, hits []Hit, settled []Settled) error

	// Locate says where the state of a hit is kept, without asking a server.
	Locate(h *Hit) Location

	// Forget forgets what this process holds about the states of these keys, as
	// Location names them, so that no Take that begins afterwards gets an answer
	// from before. In memory that is the states themselves, all at once: no group
	// sees only some of them. A store elsewhere keeps its states.
	Forget(keys []string)

	// Ping returns nil when the store can decide. Its error wraps ErrRefused when
	// the store answers but will not decide.
	Ping(ctx context.Context) error

	// Close releases what the store holds. Nothing may be called after it.
	Close() error
}

// fewHits is the most hits that Merge and Pending compare with each other, which is
// faster than a map for few.
const fewHits = 16

// Merge appends hits to merged, and for each hit its index there to of; both must
// be empty. Hits with equal keys become one, with the sum of their costs and the
// strictest of their roles. If their limits differ, which they can in requests and
// burst, the limit of the least capacity decides; it is Reported if one of them is.
//
// Hits of several holders stay apart. Those of one holder become one with the largest
// of their costs, since a holder has one slot however often it takes; or a release if
// one of them is.
func Merge(merged []Hit, of []int, hits []Hit) ([]Hit, []int) {
	var index map[string]int
	if len(hits) > fewHits {
		index = make(map[string]int, len(hits))
	}
	for _, h := range hits {
		h.Cost = clampCost(h.Cost)
		i := 0
		if index == nil {
			for i < len(merged) && !(bytes.Equal(merged[i].Key, h.Key) && merged[i].Holder == h.Holder) {
				i++
			}
		} else if h.Holder != "" {
			i = indexOf(index, string(h.Key)+"\x00"+h.Holder, len(merged)) // no key has this byte
		} else if known, ok := index[string(h.Key)]; ok {
			i = known
		} else {
			i = len(merged)
			index[string(h.Key)] = i
		}
		if i == len(merged) {
			merged = append(merged, h)
		} else {
			merged[i].Cost = mergedCost(&merged[i], &h)
			merged[i].Role = strictest(merged[i].Role, h.Role)
			merged[i].Limit = mergedLimit(merged[i].Limit, h.Limit)
		}
		of = append(of, i)
	}
	return merged, of
}

// indexOf returns the index of a name, or next if it is not known yet.
func indexOf(index map[string]int, name string, next int) int {
	i, ok := index[name]
	if !ok {
		i = next
		index[name] = next
	}
	return i
}

func mergedCost(a, b *Hit) int64 {
	switch {
	case a.Holder == "":
		return clampCost(a.Cost + b.Cost)
	case a.Cost < 0 || b.Cost < 0:
		return min(a.Cost, b.Cost)
	default:
		return max(a.Cost, b.Cost)
	}
}

func mergedLimit(a, b *Limit) *Limit {
	least := a
	if b.Capacity < a.Capacity {
		least = b
	}
	if a.isReported || b.isReported {
		return least.Reported()
	}
	return least
}

func clampCost(cost int64) int64 { return min(max(cost, -MaxCost), MaxCost) }

// Location says where the state of a hit is kept, and what decides about the hit when the
// store does not answer.
type Location struct {
	// Key is the name of the state in the store.
	Key string
	// Tag is the hash tag in Key, and Node the server that has it, as far as is
	// known. Both are empty if the store is this process.
	Tag, Node string
	// OnFailure is what decides when the store does not: never FailureDefault,
	// except for a store that cannot fail.
	OnFailure FailureMode
	// Share is the limit by which this process then decides, alone, as one of
	// Daemons; nil unless OnFailure is FailLocal.
	Share   *Limit
	Daemons int
}
