package main

import (
	"fmt"
	"math"
	"time"
)

// problem is about answers that are not what a row must give.
type problem struct {
	text string
	// wrong is whether the server decided wrongly or answered nothing; else
	// some answers are missing, as they may be on a machine that is too busy.
	wrong bool
}

// problems says which answers are not what the row must give. A bare server
// allows everything.
func (s *subject) problems() []problem {
	var ok, over, degraded, malformed int64
	var failure error
	for _, c := range s.callers {
		ok += c.tally.ok.Load()
		over += c.tally.over.Load()
		degraded += c.tally.degraded.Load()
		malformed += c.tally.malformed.Load()
		if err := c.tally.failure.Load(); err != nil {
			failure = *err
		}
	}
	var found []problem
	say := func(wrong bool, format string, args ...any) {
		text := fmt.Sprintf("%s, %s: ", s.row.name, s.name) + fmt.Sprintf(format, args...)
		found = append(found, problem{text, wrong})
	}
	if failed := s.failed(); failed > 0 {
		say(ok+over == 0, "%d of %d requests failed, the last with: %v", failed, failed+ok+over, failure)
	}
	if n := s.dropped.Load(); n > 0 {
		say(false, "%d arrivals found no caller free and were not sent; no latency counts them", n)
	}
	if degraded > 0 {
		say(true, "%d answers are degraded", degraded)
	}
	if malformed > 0 {
		say(true, "%d answers have another number of statuses than asked", malformed)
	}
	limited := s.row.load.keys == hotOver && s.name != nameBare && s.name != nameTuned
	switch {
	case limited && ok > s.allowed():
		say(true, "%d requests passed a limit of %d an hour", ok, overLimit)
	case !limited && over > 0:
		say(true, "%d of %d requests were denied, under their limit", over, ok+over)
	}
	return found
}

// allowed is how many requests for the key over its limit may have passed so
// far. What is compared may count in windows of the clock, and begin another.
func (s *subject) allowed() int64 {
	if s.name != nameDaemon {
		return 2 * overLimit
	}
	return overLimit + int64(math.Ceil(time.Since(s.since).Hours()*overLimit))
}
