package limitsfile

import (
	"math/big"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// limitAt is a limit of a rule and its position.
type limitAt struct {
	*bucket.Limit
	at yamlfile.Position
}

// maxLimitsCompared bounds how many limits of one rule are compared with each other.
const maxLimitsCompared = 100

// warnNeverBind warns of limits that never deny a request that another allows.
func (p *reader) warnNeverBind(limits []limitAt) {
	if len(limits) > maxLimitsCompared {
		return
	}
	for i, loose := range limits {
		for j, tight := range limits {
			if i == j || !neverBinds(loose.Limit, tight.Limit) {
				continue
			}
			if j > i && neverBinds(tight.Limit, loose.Limit) {
				continue // they are equals; the warning is about the later one
			}
			p.WarnAt(loose.at, "never denies what %s allows: %s beside %s", yamlfile.Quote(tight.Name), words.Limit(loose.Limit), words.Limit(tight.Limit))
			break
		}
	}
}

// neverBinds reports whether the loose limit provably allows everything that the tight
// one allows, given that both are charged for the same hits: whatever the costs, the
// refunds and the times, on a clock that does not run backwards and with numbers that do
// not change. It compares limits that count alike, and misses all other cases.
func neverBinds(loose, tight *bucket.Limit) bool {
	switch {
	case loose.Requests == 0 || tight.Requests == 0:
		return tight.Requests == 0 && loose.Algorithm.HasHolders() == tight.Algorithm.HasHolders()
	case loose.Capacity < tight.Capacity:
		return false
	case loose.Postpaid == bucket.PostpaidAlways, tight.Postpaid == bucket.PostpaidAlways:
		// Postpaid limits are charged for what others deny, and let through more than
		// they say.
		return false
	case loose.Algorithm.IsBucket() && tight.Algorithm.IsBucket():
		return loose.Quantum == tight.Quantum && perQuantum(loose).Cmp(perQuantum(tight)) >= 0
	case isSliding(loose) && isSliding(tight):
		return slidingOverSliding(loose, tight)
	case loose.Algorithm != tight.Algorithm || loose.Calendar != tight.Calendar:
		return false
	case loose.Algorithm.HasHolders():
		// Both have the same holders, whom the one with the shorter hold forgets sooner.
		return loose.PeriodMicros <= tight.PeriodMicros
	case loose.Calendar != (bucket.Calendar{}):
		return true
	}
	return tight.PeriodMicros%loose.PeriodMicros == 0 // each window lies within one of the tight limit
}

// perQuantum is how many tokens of a bucket drain in one quantum.
func perQuantum(l *bucket.Limit) *big.Rat { return big.NewRat(l.Rate, l.Unit) }

func isSliding(l *bucket.Limit) bool {
	return l.Algorithm == bucket.SlidingWindow || l.Algorithm == bucket.SlidingLog
}

// slidingOverSliding: both forget their oldest hits first, by age and by refund. So the
// loose one holds the newer part of what the tight one holds, provided that it never
// remembers a hit for longer, that is, its period and a slot are no longer than the
// period for which the other is sure to remember it; or provided that their slots are the
// same.
func slidingOverSliding(loose, tight *bucket.Limit) bool {
	same := loose.PeriodMicros == tight.PeriodMicros && loose.SlotMicros == tight.SlotMicros
	return same || loose.PeriodMicros+loose.SlotMicros-1 <= tight.PeriodMicros
}
