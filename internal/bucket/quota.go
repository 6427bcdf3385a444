package bucket

import (
	"slices"
)

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
