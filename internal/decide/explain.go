package decide

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/trace"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// Explanation says what a request would get now, and why.
type Explanation struct {
	// Domain is nil if no limits file has it.
	Domain      *rules.Domain
	Descriptors []ExplainedDescriptor
	// Allowed is whether the whole request would pass.
	Allowed bool
	// DeniedBy is the index of the descriptor that decides a denial, and DeniedByLimit
	// that of its limit; -1 if there is none.
	DeniedBy, DeniedByLimit int
	// RetryAfter is how long to wait until the same request would pass, if nobody
	// else takes; bucket.Never if it never can, bucket.Unknown if nobody knows.
	RetryAfter time.Duration
	// Degraded says that the store did not answer, so that some decisions were made in
	// its place.
	Degraded bool
	// Summary is the whole in one sentence.
	Summary string
}

// ExplainedDescriptor says what a descriptor gets, and why.
type ExplainedDescriptor struct {
	Entries []bucket.Entry
	Levels  []trace.Level
	// Rule is the rule that matches, or nil. If it has plans, Plan is the one in
	// force, or nil.
	Rule, Plan *rules.Rule
	// Assignments are those of the entries and of their beginnings.
	Assignments []AppliedAssignment
	// NotApplied are some that share entries with the descriptor, or almost do, but do
	// not apply; each Effect says why.
	NotApplied []AppliedAssignment
	// Limits are those in force, without those that others replace.
	Limits  []ExplainedLimit
	Verdict Verdict
	Hints   []string
}

// Verdict is what a descriptor gets.
type Verdict uint8

// The verdicts.
const (
	VerdictAllowed Verdict = iota + 1
	VerdictDenied
	// VerdictShadowed: it passes only because of shadow mode.
	VerdictShadowed
	VerdictUnmatchedAllowed
	VerdictUnmatchedDenied
	VerdictUnlimited
	VerdictBlocked
)

// AppliedAssignment is an assignment, and what it does to a descriptor.
type AppliedAssignment struct {
	*assign.Assignment
	Effect string
}

// ExplainedLimit is a limit in force, with its state.
type ExplainedLimit struct {
	*bucket.Limit
	Source Source
	bucket.Location
	// Decision is what the request would get from it. Nothing is charged, so what
	// remains is as before.
	bucket.Decision
	Shadow bool
	// Held are the holders of an inspected subject.
	Held bucket.Held
	// Billed is what the call's ID has charged; nil if the store knows of nothing, and
	// for a limit whose charges are not settled.
	Billed *Billed
	// OnStoreFailure is what a failure of the store would do, in words.
	OnStoreFailure string
}

// Source is where the numbers of a limit come from.
type Source uint8

// The sources.
const (
	FromFile Source = iota + 1
	FromAssignment
	FromRequest
)

// Explain says what a checked call would get from Decide at this moment. It finds
// the limits as Decide does and only looks at the states: it charges nothing,
// remembers nothing and counts nothing. Its error is one that Decide would return, or for
// a call with an ID NotReady.
func (d *Decider) Explain(ctx context.Context, c *Call) (*Explanation, error) {
	x, e, err := d.explainNow(ctx, c)
	if err == nil && x.isInspected {
		x.listHolders(ctx, e)
	}
	if err == nil && c.ID != "" {
		err = x.listBills(ctx, e)
	}
	return e, err
}

// shown are the hits of the call, each with the limit that the explanation shows for it.
func (x *explaining) shown(e *Explanation) iter.Seq2[*bucket.Hit, *ExplainedLimit] {
	return func(yield func(*bucket.Hit, *ExplainedLimit) bool) {
		for i := range e.Descriptors {
			hits, limits := x.Outcomes[i].Hits, e.Descriptors[i].Limits
			first := len(hits) - len(limits) // a refusal's own limit is not shown
			for j := range limits {
				if !yield(&hits[first+j], &limits[j]) {
					return
				}
			}
		}
	}
}

func (d *Decider) explainNow(ctx context.Context, c *Call) (*explaining, *Explanation, error) {
	x, err := d.explain(c)
	if err != nil {
		return nil, nil, err
	}
	if len(c.Hits) > 0 {
		if err := c.take(ctx, d.Store.Check); err != nil {
			return nil, nil, err
		}
	}
	return x, x.finish(), nil
}

// explaining is an Explanation in the making.
type explaining struct {
	*Call
	traces []trace.Search
	// assignments are those in force for each descriptor, those of the fewest entries
	// first.
	assignments [][]*assign.Assignment
	notApplied  [][]AppliedAssignment
}

// explain matches a call and gathers what led to its limits, by the rules that it was
// matched with.
func (d *Decider) explain(c *Call) (*explaining, error) {
	if err := d.Match(c); err != nil {
		return nil, err
	}
	x := &explaining{Call: c}
	descriptors := make([][]bucket.Entry, len(c.Descriptors))
	x.assignments = make([][]*assign.Assignment, len(c.Descriptors))
	x.notApplied = make([][]AppliedAssignment, len(c.Descriptors))
	now := d.Now()
	misses := nearMiss{table: d.Assigned, domain: c.Domain, now: now, domains: d.Assigned.DomainNames(), lookups: maxLookups, room: maxNotApplied}
	for i := range c.Descriptors {
		descriptors[i] = c.Descriptors[i].Entries
		x.assignments[i] = d.assignmentsOf(c.Domain, descriptors[i], now)
		x.notApplied[i] = misses.of(descriptors[i])
	}
	x.traces = trace.Of(c.Rules, c.Domain, descriptors)
	return x, nil
}

// assignmentsOf returns the assignments of entries and of their beginnings.
func (d *Decider) assignmentsOf(domain string, entries []bucket.Entry, now int64) (found []*assign.Assignment) {
	if d.Assigned.Domain(domain) == nil {
		return nil
	}
	size := len(domain)
	for i := range entries[:min(len(entries), assign.MaxEntries)] {
		if size += len(entries[i].Key) + len(entries[i].Value); size > assign.MaxSubject {
			break
		}
		if a := d.Assigned.Get(assign.Subject{Domain: domain, Entries: entries[:i+1]}).InForce(now); a != nil {
			found = append(found, a)
		}
	}
	return found
}

// finish makes the explanation of a decided call.
func (x *explaining) finish() *Explanation {
	e := &Explanation{Domain: x.found, Allowed: !x.Denied, DeniedBy: -1, DeniedByLimit: -1}
	for i := range x.Outcomes {
		o := &x.Outcomes[i]
		e.Descriptors = append(e.Descriptors, x.descriptor(i))
		for j := range o.Decisions {
			e.Degraded = e.Degraded || o.Decisions[j].Degraded
		}
	}
	if x.Denied {
		var decision bucket.Decision
		e.DeniedBy, e.DeniedByLimit, decision = x.Denier()
		e.RetryAfter = decision.RetryAfter
		if x.Outcomes[e.DeniedBy].Refusal != NotRefused {
			e.DeniedByLimit-- // the refusal's own limit is not shown
		}
	}
	e.Summary = x.summary(e)
	return e
}

func (x *explaining) descriptor(i int) ExplainedDescriptor {
	o, trace := &x.Outcomes[i], &x.traces[i]
	e := ExplainedDescriptor{
		Entries:    slices.Clone(x.Descriptors[i].Entries),
		Levels:     trace.Levels,
		Rule:       trace.Rule,
		NotApplied: x.notApplied[i],
		Verdict:    x.verdict(o),
		Hints:      append(trace.Hints, x.notes(i)...),
	}
	if trace.Rule != nil && trace.Rule.Plans != nil {
		e.Plan = o.Rule
	}
	for _, a := range x.assignments[i] {
		e.Assignments = append(e.Assignments, AppliedAssignment{a, x.effect(i, a)})
	}
	for j, l := range o.Limits {
		if o.Refusal != NotRefused && j == 0 {
			continue
		}
		at := x.decider.Store.Locate(&o.Hits[j])
		e.Limits = append(e.Limits, ExplainedLimit{
			Limit: l, Source: o.Source(l), Location: at, Decision: o.Decisions[j],
			Shadow: o.isShadow(x.decider.Modes) || !o.Enforces(j), OnStoreFailure: onFailure(&o.Hits[j], &at),
		})
	}
	return e
}

// Source tells where the numbers of one of the outcome's limits come from.
func (o *Outcome) Source(l *bucket.Limit) Source {
	switch {
	case o.Own != nil:
		return FromRequest
	case o.Rule != nil && slices.Contains(o.Rule.Limits, l):
		return FromFile
	}
	return FromAssignment
}

func (x *explaining) verdict(o *Outcome) Verdict {
	isShadow := o.isShadow(x.decider.Modes)
	switch {
	case o.Refusal != NotRefused && isShadow:
		return VerdictShadowed
	case o.Refusal == Blocked:
		return VerdictBlocked
	case o.Refusal == Unmatched:
		return VerdictUnmatchedDenied
	case o.IsUnlimited():
		return VerdictUnlimited
	case o.Rule == nil && o.Own == nil:
		return VerdictUnmatchedAllowed
	case !o.IsOver():
		return VerdictAllowed
	case isShadow:
		return VerdictShadowed
	}
	return VerdictDenied
}

// Inspect explains every limit of one subject, as a peek: each decision says what a
// cost of 1 would get. Where the last entry names a holder, its value may be empty: then
// the subject is looked at, and else this holder. An id, if it is not empty, is one whose
// charges are shown too; owner is the name of the caller who took with it, if callers have
// names.
func (d *Decider) Inspect(ctx context.Context, domain string, entries []bucket.Entry, id, owner string) (*Explanation, error) {
	c := d.NewCall()
	c.Domain, c.ID, c.Owner, c.isInspected = domain, id, owner, true
	c.Descriptors = append(c.Descriptors, Descriptor{Entries: entries, HasHitsAddend: true})
	if err := c.Check(false); err != nil {
		return nil, err
	}
	return d.Explain(ctx, c)
}

// Resettable are states that Reset forgets.
type Resettable struct {
	// Limits are the names of the limits, and Keys the names of their states as the
	// store has them. Limits of several plans may share both.
	Limits, Keys []string
	// Idle says why there are none, "" if there are some.
	Idle string
	// Hints name the subjects that people may have meant instead, a sentence each.
	Hints []string
	// HasHolder says that the last entry names a holder: then its slots are freed, by
	// Decider.Free, and not the states of the subject.
	HasHolder bool

	release []bucket.Hit
}

// Resettable returns the states of a subject: of all limits of its rule, whatever plan
// is in force, or of the one that limit names. They do not include the states of limits
// that requests bring with a period that no limit of the rule has: nobody knows these
// periods. Its error is Invalid if there is no such domain or limit.
func (d *Decider) Resettable(domain string, entries []bucket.Entry, limit *string) (Resettable, error) {
	inForce := d.Live.Rules()
	if inForce == nil {
		return Resettable{}, errNoLimits
	}
	found := inForce.Domain(domain)
	if found == nil {
		return Resettable{}, errorOf(Invalid, "domain: %s", trace.NoDomain(inForce, domain))
	}
	rule := found.Match(entries)
	hints := trace.NewReacher(inForce, 1).Exactly(domain, entries).Hints
	if rule == nil {
		return Resettable{Idle: fmt.Sprintf("no rule is for the descriptor %s, so it has no limit to reset", words.Entries(entries)), Hints: hints}, nil
	}
	plans := []*rules.Rule{rule}
	if rule.Plans != nil {
		plans = rule.Plans.All()
	}
	c := d.NewCall()
	c.Domain = domain
	for i, plan := range plans {
		c.Descriptors = append(c.Descriptors, Descriptor{Entries: entries})
		c.Outcomes = append(c.Outcomes, Outcome{Rule: plan, Limits: plan.Limits})
		c.nameSubject(i)
	}
	c.addHits(found)
	r := Resettable{Hints: hints, HasHolder: rule.HasHolders && entries[len(entries)-1].Value != ""}
	for i := range c.Hits {
		h := &c.Hits[i]
		if limit != nil && h.Limit.Name != *limit {
			continue
		}
		if key := d.Store.Locate(h).Key; !slices.Contains(r.Keys, key) {
			r.Keys = append(r.Keys, key)
			r.release = append(r.release, *h)
		}
		if !slices.Contains(r.Limits, h.Limit.Name) {
			r.Limits = append(r.Limits, h.Limit.Name)
		}
	}
	r.release = releaseHits(r.release)
	switch {
	case len(r.Keys) > 0:
		return r, nil
	case len(c.Hits) == 0:
		r.Idle = fmt.Sprintf("the rule %s is unlimited, so it has no limit to reset", rule.Path())
		return r, nil
	}
	var names []string
	for i := range c.Hits {
		if name := strconv.Quote(c.Hits[i].Limit.Name); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return r, errorOf(Invalid, "limit: found %s, which the rule %s does not have; allowed: %s",
		yamlfile.Quote(*limit), rule.Path(), yamlfile.Shorten(yamlfile.Commas(names)))
}
