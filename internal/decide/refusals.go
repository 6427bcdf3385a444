package decide

import (
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
)

// refusals are the limits that stand for a refusal in answers: they admit nothing
// and have no state.
var refusals = map[Refusal][]*bucket.Limit{
	Blocked:   {refusal(tally.BlockedLimit)},
	Unmatched: {refusal(tally.UnmatchedLimit)},
}

func refusal(name string) *bucket.Limit {
	l, err := bucket.NewLimit(bucket.Spec{Name: name, Algorithm: bucket.FixedWindow, Period: time.Second})
	if err != nil {
		panic(fmt.Sprintf("decide: a limit of nothing is none: %v", err))
	}
	return l
}

// refuse denies outcome i until a moment, in microseconds since the Unix epoch, or for
// good if that is 0. The outcome's limits become that of the refusal, and then those
// that are charged anyway for what was already used.
func (c *Call) refuse(i int, why Refusal, until int64) {
	o, asked := &c.Outcomes[i], &c.Descriptors[i]
	limits := refusals[why]
	for _, l := range o.Limits {
		if asked.limit(l).ChargedAnyway(asked.cost) {
			limits = append(limits, l)
		}
	}
	o.Refusal, o.until, o.Own, o.freed, o.Limits = why, until, nil, false, limits
	c.hasRefusal = true
}

// refused returns the decision of a refused outcome.
func (o *Outcome) refused(now int64) bucket.Decision {
	if o.until == 0 {
		return bucket.Decision{RetryAfter: bucket.Never}
	}
	left := max(time.Microsecond, time.Duration(o.until-now)*time.Microsecond)
	return bucket.Decision{RetryAfter: left, ResetAfter: left}
}
