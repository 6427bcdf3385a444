package decide

import (
	"context"
	"errors"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// take takes the hits of a matched call from the store, under the call's ID if it has one.
func (d *Decider) take(ctx context.Context, c *Call) error {
	if c.ID == "" {
		c.askForLease()
		err := c.decideBy(ctx, d.Store.Take)
		for err == nil && c.lowerLease() {
			err = c.decideBy(ctx, d.Store.Take)
		}
		return err
	}
	return c.decideBy(ctx, func(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
		return d.Store.Reserve(ctx, bucket.Reservation{ID: c.StoreID(), Owner: c.Owner, Lasts: c.SettleWithin}, hits, decisions)
	})
}

// storeMethod is Take or Check of a store.
type storeMethod = func(context.Context, []bucket.Hit, []bucket.Decision) error

// decideBy decides the hits of a matched call by a method of the store, and gives each
// outcome its decisions.
func (c *Call) decideBy(ctx context.Context, method storeMethod) error {
	if len(c.Hits) == 0 {
		return nil
	}
	if err := c.decider.Refuses(); err != nil {
		return err
	}
	c.makeDecisions()
	if c.chargesUse() {
		// A caller that reports what was used does not wait long for the answer: Envoy
		// gives up after 20 ms by default. The use is charged anyway, within the
		// store's own time.
		ctx = context.WithoutCancel(ctx)
	}
	var err error
	if c.hasRefusal {
		err = c.takeBesideRefusals(ctx, method)
	} else {
		err = method(ctx, c.Hits, c.decisions)
	}
	if err == nil {
		c.applyDecisions()
	}
	return err
}

// makeDecisions makes a decision for each hit.
func (c *Call) makeDecisions() {
	c.decisions = append(c.decisions[:0], make([]bucket.Decision, len(c.Hits))...)
}

// chargesUse reports whether all hits are charged even if they are denied.
func (c *Call) chargesUse() bool {
	for i := range c.Hits {
		if h := &c.Hits[i]; !h.Limit.ChargedAnyway(h.Cost) {
			return false
		}
	}
	return true
}

// takeBesideRefusals calls a method of the store for a call with refused outcomes. It
// does not ask the store about those: a refusal holds while the store is away. If one
// of them denies the call, what was already used is charged, and the rest is only
// looked at.
func (c *Call) takeBesideRefusals(ctx context.Context, method storeMethod) error {
	now, hits, decisions := c.decider.Now(), c.Hits, c.decisions
	var asked, used []int
	denied := false
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		for j := range o.Hits {
			switch h, n := &o.Hits[j], o.First+j; {
			case o.Refusal != NotRefused && j == 0:
				decisions[n] = o.refused(now)
				denied = denied || o.Role == bucket.Enforced
			case h.Limit.ChargedAnyway(h.Cost):
				used = append(used, n)
			default:
				asked = append(asked, n)
			}
		}
	}
	if !denied { // all refusals are in shadow
		asked = append(asked, used...)
		return decideSome(ctx, method, pick(hits, asked), asked, decisions)
	}
	charged := pick(hits, used)
	for i := range charged {
		charged[i].Role = bucket.Aside // whatever the others get
	}
	if err := decideSome(ctx, method, charged, used, decisions); err != nil {
		return err
	}
	// The request is denied, whatever the store would say.
	_ = decideSome(ctx, c.decider.Store.Check, pick(hits, asked), asked, decisions)
	return nil
}

// pick returns copies of the hits with these indexes.
func pick(hits []bucket.Hit, which []int) []bucket.Hit {
	some := make([]bucket.Hit, len(which))
	for i, n := range which {
		some[i] = hits[n]
	}
	return some
}

// decideSome calls a method of a store with some of the hits of a call, and puts the
// decisions where the call has these hits: at the indexes which.
func decideSome(ctx context.Context, method storeMethod, some []bucket.Hit, which []int, decisions []bucket.Decision) error {
	if len(some) == 0 {
		return nil
	}
	got := make([]bucket.Decision, len(some))
	if err := method(ctx, some, got); err != nil {
		return err
	}
	for i, n := range which {
		decisions[n] = got[i]
	}
	return nil
}

// applyDecisions gives the call and its outcomes what the store decided.
func (c *Call) applyDecisions() {
	c.Denied = !bucket.GroupAllowed(c.Hits, c.decisions)
	c.giveDecisions()
}

// giveDecisions gives each outcome the decisions of its limits.
func (c *Call) giveDecisions() {
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		end := o.First + len(o.Hits)
		o.Decisions = c.decisions[o.First:end:end]
	}
}

// ErrAlone is how a call ends that was not decided together with others. Decide decides it.
var ErrAlone = errors.New("a call is to be decided alone")

// NodeOf returns the node that decides a matched call, which may be decided together with
// others of this node. It is nil if the call must be decided alone: it does more than take,
// or a part of it is decided without the store.
func (d *Decider) NodeOf(c *Call) any {
	if d.Many == nil || !c.onlyTakes() {
		return nil
	}
	return d.Many.NodeOf(c.Hits)
}

// onlyTakes reports whether all that a matched call needs is a Take of the store.
func (c *Call) onlyTakes() bool {
	return c.ID == "" && !c.hasRefusal && len(c.Hits) > 0 && !c.chargesUse()
}

// DecideTogether decides calls of one caller, and of one node, as Decide does, but asks the
// store about all of them at once. errs, which has an element for each and no error, gets how
// each ended.
func (d *Decider) DecideTogether(ctx context.Context, calls []*Call, errs []error) {
	takes, of := make([]bucket.Take, 0, len(calls)), make([]int, 0, len(calls))
	for i, c := range calls {
		if d.Match(c) != nil || !c.onlyTakes() || d.Refuses() != nil {
			errs[i] = ErrAlone // Decide says why
			continue
		}
		c.askForLease()
		takes, of = append(takes, c.newTake()), append(of, i)
	}
	for len(takes) > 0 {
		d.Many.TakeMany(ctx, takes)
		taken := takes
		takes = nil
		for n, i := range of {
			c := calls[i]
			if errs[i] = taken[n].Err; errs[i] != nil {
				continue
			}
			c.applyDecisions()
			if c.lowerLease() {
				of[len(takes)] = i
				takes = append(takes, c.newTake())
				continue
			}
			errs[i] = d.conclude(ctx, c)
		}
		of = of[:len(takes)]
	}
}

// newTake returns the take of a matched call.
func (c *Call) newTake() bucket.Take {
	c.makeDecisions()
	return bucket.Take{Hits: c.Hits, Decisions: c.decisions}
}
