package explain

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/trace"
	"github.com/ratelimitd/ratelimitd/internal/decide"
)

// Explanation says what a request would get now, and why.
type Explanation struct {
	// Domain is nil if no limits file has it. Then NearDomain is one with almost the same
	// name, or "".
	Domain      *rules.Domain
	NearDomain  string
	Descriptors []Descriptor
	// Allowed is whether the whole request would pass.
	Allowed bool
	// DeniedBy is the index of the descriptor that decides a denial, and DeniedByLimit
	// that of its limit; -1 if there is none.
	DeniedBy, DeniedByLimit int
	// RetryAfter is how long to wait until the same request would pass, if no one
	// else takes; bucket.Never if it never can, bucket.Unknown if that is unknown.
	RetryAfter time.Duration
	// Degraded says that the store did not answer, so that some decisions were made in
	// its place.
	Degraded bool
}

// Descriptor says what a descriptor gets, and why.
type Descriptor struct {
	// Search is how it leads to its rule. If that has plans, Plan is the one in force, or
	// nil.
	*trace.Search
	Plan    *rules.Rule
	Verdict Verdict
	// Networks name, for each entry whose value is an address, how it is counted.
	Networks []Network
	// Assignments are those of the entries and of their beginnings, the shortest first.
	Assignments []Assignment
	// Limits are those in force, without those that others replace.
	Limits []Limit
}

// Network is how an entry whose value is an address is counted.
type Network struct {
	Key, Counted string
	// CIDR is the prefix that the address matches, or "".
	CIDR string
}

// Verdict is what a descriptor gets.
type Verdict uint8

// The verdicts.
const (
	Allowed Verdict = iota + 1
	Denied
	// Shadowed: it passes only because of shadow mode.
	Shadowed
	UnmatchedAllowed
	UnmatchedDenied
	Unlimited
	Blocked
)

// Limit is a limit in force, with its state.
type Limit struct {
	*bucket.Limit
	Source decide.Source
	bucket.Location
	// Decision is what the request would get from it. Nothing is charged, so what
	// remains is as before.
	bucket.Decision
	// Shadow is set if it cannot deny the descriptor.
	Shadow bool
	// Held are the holders of an inspected subject.
	Held bucket.Held
	// Bill is what the call's ID has charged, at Clock, the store's time; the zero Bill if
	// the store knows of nothing, and for a limit whose charges are not settled.
	Bill  bucket.Bill
	Clock int64
}

// Request says what a checked call would get from Decide at this moment. Its error is one
// that Decide would return, or for a call with an ID that the store does not answer.
func Request(ctx context.Context, d *decide.Decider, c *decide.Call) (*Explanation, error) {
	if err := d.Look(ctx, c); err != nil {
		return nil, err
	}
	x := &Explanation{Domain: c.Rules.Domain(c.Domain), Allowed: !c.Denied, DeniedBy: -1, DeniedByLimit: -1, Degraded: c.IsDegraded()}
	if x.Domain == nil {
		x.NearDomain = trace.NearDomain(c.Rules, c.Domain)
	}
	for i := range c.Outcomes {
		e, err := descriptorOf(ctx, d, c, i, x.Domain)
		if err != nil {
			return nil, err
		}
		x.Descriptors = append(x.Descriptors, e)
	}
	if c.Denied {
		var decision bucket.Decision
		x.DeniedBy, x.DeniedByLimit, decision = c.Denier()
		x.RetryAfter = decision.RetryAfter
		if c.Outcomes[x.DeniedBy].Refusal != decide.NotRefused {
			x.DeniedByLimit-- // the refusal's own limit is not shown
		}
	}
	return x, nil
}

// Subject explains every limit of one subject, as a peek: each decision says what a
// cost of 1 would get. Where the last entry names a holder, its value may be empty: then
// the subject is looked at, and else this holder. An id, if it is not empty, is one whose
// charges are shown too; owner is the name of the caller who took with it, if callers have
// names.
func Subject(ctx context.Context, d *decide.Decider, domain string, entries []bucket.Entry, id, owner string) (*Explanation, error) {
	c := d.NewCall()
	c.Domain, c.ID, c.Owner, c.Inspects = domain, id, owner, true
	c.Descriptors = append(c.Descriptors, decide.Descriptor{Entries: entries, HasHitsAddend: true})
	if err := c.Check(false); err != nil {
		return nil, err
	}
	return Request(ctx, d, c)
}

// descriptorOf explains descriptor i of a call that was looked at.
func descriptorOf(ctx context.Context, d *decide.Decider, c *decide.Call, i int, domain *rules.Domain) (Descriptor, error) {
	o := &c.Outcomes[i]
	x := Descriptor{Search: &trace.Search{Entries: c.Descriptors[i].Entries}, Verdict: verdictOf(o, c.IsShadow(o))}
	if domain == nil {
		return x, nil
	}
	x.Search = trace.Of(domain, x.Entries, trace.MaxLooks/len(c.Outcomes))
	x.Networks = networksOf(domain, x.Entries)
	if x.Rule != nil && x.Rule.Plans != nil {
		x.Plan = o.Rule
	}
	for j, l := range o.Limits {
		if o.Refusal != decide.NotRefused && j == 0 {
			continue // it stands for the refusal
		}
		h := &o.Hits[j]
		limit := Limit{
			Limit: l, Source: o.Source(l), Location: d.Store.Locate(h), Decision: o.Decisions[j], Shadow: c.IsShadow(o) || !o.Enforces(j),
		}
		if err := limit.ask(ctx, d.Store, c, h); err != nil {
			return x, err
		}
		x.Limits = append(x.Limits, limit)
	}
	x.Assignments = assignmentsOf(d, c.Domain, o, &x)
	return x, nil
}

// networksOf returns how the addresses among entries are counted.
func networksOf(domain *rules.Domain, entries []bucket.Entry) (found []Network) {
	if !domain.HasNetworks() {
		return nil
	}
	counted := make([]string, len(entries))
	domain.MatchNetworks(entries, counted)
	n := domain.Root()
	for i := range entries {
		if counted[i] != "" {
			found = append(found, Network{Key: entries[i].Key, Counted: counted[i], CIDR: n.CIDROf(&entries[i])})
		}
		if n = n.Next(&entries[i]); n == nil {
			break
		}
	}
	return found
}

func verdictOf(o *decide.Outcome, isShadow bool) Verdict {
	switch {
	case o.Refusal != decide.NotRefused && isShadow:
		return Shadowed
	case o.Refusal == decide.Blocked:
		return Blocked
	case o.Refusal == decide.Unmatched:
		return UnmatchedDenied
	case o.IsUnlimited():
		return Unlimited
	case o.Rule == nil && o.Own == nil:
		return UnmatchedAllowed
	case !o.IsOver():
		return Allowed
	case isShadow:
		return Shadowed
	}
	return Denied
}
