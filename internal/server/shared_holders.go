package server

import (
	"log/slog"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
)

// sharedEvery is the least time between two warnings about a limit whose requests share a
// holder, and the time whose takes are looked at for one.
const sharedEvery = time.Hour

// sharedHolders warns of limits of requests in flight whose takes nearly all renew a slot
// that was just taken: the last entry of their descriptors names no holder, so they limit
// nothing. One goroutine uses it.
type sharedHolders struct {
	log  *slog.Logger
	seen map[*tally.LimitCounts]seenTakes
}

// seenTakes are the takes of a limit up to a moment of the decider's clock, and when the
// next warning is due.
type seenTakes struct {
	sums   tally.HolderSums
	at     time.Duration
	warnAt time.Duration
}

// look warns of the limits of a set of rules at now, by the decider's clock.
func (h *sharedHolders) look(set *rules.Set, now time.Duration) {
	seen := make(map[*tally.LimitCounts]seenTakes)
	for _, d := range set.Domains() {
		for _, rule := range d.Rules() {
			if !rule.HasHolders {
				continue
			}
			for _, counts := range rule.Counts.Limits() {
				if counts.HasHolders() {
					seen[counts] = h.lookAt(d.Name, rule, counts, now)
				}
			}
		}
	}
	h.seen = seen
}

// lookAt warns of one limit.
func (h *sharedHolders) lookAt(domain string, rule *rules.Rule, counts *tally.LimitCounts, now time.Duration) seenTakes {
	before := h.seen[counts]
	if renewed, takes := counts.SharedHolder(before.sums); takes > 0 && now >= before.warnAt {
		h.log.Warn("requests share a holder: nearly all takes renew a slot that was just taken, so the limit does not limit them; the value of the last entry must tell each request in flight from the others",
			"domain", domain, "rule", rule.Path(), "limit", counts.Name, "renewed", renewed, "takes", takes)
		return seenTakes{sums: counts.HolderSums(), at: now, warnAt: now + sharedEvery}
	}
	if now-before.at >= sharedEvery {
		before.sums, before.at = counts.HolderSums(), now
	}
	return before
}
