package bucket

import (
	"slices"
)

// Role says how a hit takes part in the decision whether its group is allowed.
type Role int32

const (
	// Enforced hits must all be allowed.
	Enforced Role = 0
	// Aside hits do not matter to their group. They are charged if they and
	// their group are allowed.
	Aside Role = -1
)

// Quota returns the role of the hits of the n-th quota, from 1 on. A quota is
// allowed if all its hits are. Of the quotas in a group at least one must be
// allowed; hits of the others are charged as Aside ones are. The hits of a quota follow
// each other, except for hits Aside, and later quotas have higher numbers.
func Quota(n int) Role { return Role(n) }

// strictest returns the role of a hit that is merged from two.
func strictest(a, b Role) Role {
	switch {
	case a == Enforced || b == Enforced:
		return Enforced
	case a == Aside:
		return b
	case b == Aside:
		return a
	default:
		return min(a, b)
	}
}

// Allowed reports whether all of these hits were allowed.
func Allowed(decisions []Decision) bool {
	for i := range decisions {
		if decisions[i].RetryAfter != 0 {
			return false
		}
	}
	return true
}

// GroupAllowed reports whether a group of merged hits is allowed, when each hit
// by itself got its decision.
func GroupAllowed(hits []Hit, decisions []Decision) bool {
	quotas := false
	for i := range decisions {
		if decisions[i].RetryAfter == 0 {
			continue
		}
		switch role := hits[i].Role; {
		case role == Enforced:
			return false
		case role != Aside:
			quotas = true
		}
	}
	return !quotas || someQuotaAllowed(hits, decisions)
}

func someQuotaAllowed(hits []Hit, decisions []Decision) bool {
	at, allowed := Aside, false
	for i := range hits {
		role := hits[i].Role
		if role <= Enforced {
			continue
		}
		if role != at {
			if allowed {
				return true
			}
			at, allowed = role, true
		}
		allowed = allowed && decisions[i].Allowed()
	}
	return allowed
}

// Due reports whether a hit that by itself got d is to be charged, in a group that
// is allowed or not.
func Due(h *Hit, d *Decision, allowed bool) bool {
	return allowed && d.RetryAfter == 0 || h.Limit.ChargedAnyway(h.Cost)
}

// Charged reports whether a Take that returned d for a hit, in a group that was
// allowed or not, took something that can be given back.
func Charged(h *Hit, d *Decision, allowed bool) bool {
	return h.Cost > 0 && d.Renewal == NotRenewed && Due(h, d, allowed)
}

// SettleQuotas changes the roles of quotas that share keys with other hits, so that the
// hits allow the same once equal keys are merged: a quota whose hits are all enforced
// anyway makes all quotas needless, and if one quota asks a single key that another asks
// too, the other adds nothing. Such quotas become Aside. The hits of a quota follow each
// other. Two quotas that share a key must ask for the same keys, or one of them for that
// key alone: a descriptor's own limit is a single one.
func SettleQuotas(hits []Hit) {
	merged, of := Merge(nil, nil, hits)
	needless, alone := false, make([]bool, len(merged))
	quotas := quotasOf(hits)
	for i := range quotas {
		q := &quotas[i]
		for i, j := range of[q.first:q.end] {
			if hits[q.first+i].Role != Aside && merged[j].Role != Enforced {
				q.asked = append(q.asked, j)
			}
		}
		needless = needless || len(q.asked) == 0
		if len(q.asked) == 1 {
			alone[q.asked[0]] = true
		}
	}
	isAlone := func(j int) bool { return alone[j] }
	for _, q := range quotas {
		if needless || len(q.asked) > 1 && slices.ContainsFunc(q.asked, isAlone) {
			for i := q.first; i < q.end; i++ {
				hits[i].Role = Aside
			}
		}
	}
}

// quota is the hits from first to end that have one number; hits Aside may be among them.
type quota struct {
	first, end int
	asked      []int // the merged hits that it asks and that are not enforced
}

func quotasOf(hits []Hit) []quota {
	var quotas []quota
	for i := range hits {
		if role := hits[i].Role; role > Enforced {
			if n := len(quotas); n == 0 || hits[quotas[n-1].first].Role != role {
				quotas = append(quotas, quota{first: i})
			}
			quotas[len(quotas)-1].end = i + 1
		}
	}
	return quotas
}
