package bucket

import (
	"bytes"
	"context"
	"errors"
)

// Hit asks one limit for cost.
type Hit struct {
	Limit *Limit
	// Key is where the limit's state lives; AppendKey makes it. The store
	// does not keep the slice.
	Key []byte
	// Place decides together with which other keys this one is placed in a
	// sharded store: hits with equal places are decided atomically. It is the
	// subject, or the value of the entry that a domain names for the purpose.
	Place []byte
	// Cost is what the request takes: 0 peeks, a negative cost refunds. It is
	// cut to MaxCost either way.
	Cost int64
	// Role says what the hit has to do with whether its group is allowed.
	Role Role
}

// ErrRefused says that a store answers and will not decide, as long as nobody
// changes how it or its caller is set up: a wrong password, a missing right.
var ErrRefused = errors.New("refused")

// Store keeps the states of limits and decides hits. Its methods may be called
// concurrently.
type Store interface {
	// Take decides the hits of one request, a group, and writes what each of
	// them got to decisions, which has the length of hits.
	//
	// The group succeeds if every hit is allowed, or those that their roles
	// let decide (GroupAllowed). Then all that are allowed are charged;
	// otherwise none is, postpaid ones aside. Hits with equal keys are one
	// hit of their summed cost and get the same decision. In a group that is
	// denied, a hit that was allowed by itself says so, with what remains
	// uncharged.
	//
	// An error means that decisions holds nothing of use. What was charged is
	// unknown then, and Take must not be called again for the same request.
	Take(ctx context.Context, hits []Hit, decisions []Decision) error

	// Check decides a group exactly as Take would at this moment, and changes
	// nothing: nothing is charged, from postpaid limits neither, so what
	// remains and the resets are those before any charge. Only a state that a
	// wrong clock wrote is mended, as by every call that meets one. Its
	// decisions are not for GiveBack. An error means that decisions holds
	// nothing of use.
	Check(ctx context.Context, hits []Hit, decisions []Decision) error

	// GiveBack returns what an earlier Take with these decisions charged for
	// these hits, each as far as what was taken at its decision's moment still
	// counts. What took nothing is passed over: peeks, refunds, and the hits
	// of a group that was denied, postpaid ones aside. It is best effort: an
	// error means that some of it may have been lost.
	GiveBack(ctx context.Context, hits []Hit, decisions []Decision) error

	// Ping returns nil when the store can decide. ErrRefused is in its error
	// when the store answers and will not.
	Ping(ctx context.Context) error

	// Close releases what the store holds. Nothing may be called after it.
	Close() error
}

// fewHits are compared with each other faster than looked up.
const fewHits = 16

// Merge appends hits to merged, those with equal keys as one with the sum of
// their costs and the strictest of their roles, and to of, for each hit, its
// index in the result. Both are empty at first. Where the limits of equal keys
// differ, which they can in their requests and bursts, the one of the least
// capacity decides for all.
func Merge(merged []Hit, of []int, hits []Hit) ([]Hit, []int) {
	var index map[string]int
	if len(hits) > fewHits {
		index = make(map[string]int, len(hits))
	}
	for _, h := range hits {
		h.Cost = clampCost(h.Cost)
		i := 0
		if index == nil {
			for i < len(merged) && !bytes.Equal(merged[i].Key, h.Key) {
				i++
			}
		} else if known, ok := index[string(h.Key)]; ok {
			i = known
		} else {
			i = len(merged)
			index[string(h.Key)] = i
		}
		if i == len(merged) {
			merged = append(merged, h)
		} else {
			merged[i].Cost = clampCost(merged[i].Cost + h.Cost)
			merged[i].Role = strictest(merged[i].Role, h.Role)
			if h.Limit.Capacity < merged[i].Limit.Capacity {
				merged[i].Limit = h.Limit
			}
		}
		of = append(of, i)
	}
	return merged, of
}

func clampCost(cost int64) int64 { return min(max(cost, -MaxCost), MaxCost) }
