package replay

import (
	"cmp"
	"context"
	"sync/atomic"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
)

// side decides lines by one set of limits, or by those that each line names.
type side struct {
	modes  decide.Modes
	states *states
	// deciders are keyed by the fingerprint of the rules; fixed decides all lines if it
	// is not nil.
	fixed    *decider
	deciders map[string]*decider
	// refused are takes that were allowed when they were recorded and that this side
	// denied, so that giving them back gives nothing.
	refused refusedTakes
	// clocks is reused for states.clocks.
	clocks []hitClock
}

// decider decides by one set of rules.
type decider struct {
	*decide.Decider
	rules *rules.Set
	call  *decide.Call
	// assigned is reused for what is assigned to each descriptor of a line.
	assigned []said
}

// said is what a line says about a descriptor's assignments.
type said struct {
	found     assign.Found
	own, plan assign.Held
	block     assign.Held
}

// noBounds lets through all requests that a daemon let through.
var noBounds = decide.Bounds{Descriptors: 1 << 30, Entries: 1 << 30, Bytes: 1 << 30}

func newSide(maxKeys int) *side {
	return &side{states: newStates(maxKeys), deciders: make(map[string]*decider)}
}

// apply applies the settings of a daemon.
func (s *side) apply(o *decisionlog.Settings) {
	s.modes = decide.Modes{Shadow: o.ShadowMode, Quota: o.QuotaMode, DenyUnmatched: o.DenyUnmatched}
	s.states.maxSkew = cmp.Or(o.MaxClockSkew, bucket.DefaultMaxClockSkew).Microseconds()
	if s.fixed != nil {
		s.fixed.Modes = s.modes
	}
	for _, d := range s.deciders {
		d.Modes = s.modes
	}
}

// add makes a decider of rules.
func (s *side) add(set *rules.Set) *decider {
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "replayed"}, []string{"result"})
	d := &decider{rules: set, Decider: decide.New(decide.Options{
		Live:           rules.Fixed(set),
		Store:          s.states,
		Refuses:        func() error { return nil },
		Modes:          s.modes,
		Bounds:         noBounds,
		Now:            func() int64 { return s.states.now },
		UnknownDomains: new(atomic.Uint64),
		OwnLimits:      decide.NewResults(counter),
	})}
	d.call = d.NewCall()
	return d
}

// of returns the decider for a line, or nil if its rules are not known.
func (s *side) of(l *decisionlog.Line) *decider {
	if s.fixed != nil {
		return s.fixed
	}
	return s.deciders[l.Limits]
}

// decide decides a line. The call is valid until the next one.
func (s *side) decide(d *decider, l *decisionlog.Line, recorded *decider) (*decide.Call, error) {
	c, err := s.match(d, l, recorded)
	if err != nil {
		return nil, err
	}
	if err := d.Decide(context.Background(), c); err != nil {
		return nil, err
	}
	if c.Denied && l.Kind == decisionlog.Decided && l.Result == decisionlog.Allowed {
		s.refused.add(c, l)
	}
	return c, nil
}

// match turns a line into a call with its hits, and sets the clocks to those of the line.
func (s *side) match(d *decider, l *decisionlog.Line, recorded *decider) (*decide.Call, error) {
	c, err := d.read(l, recorded)
	if err != nil {
		return nil, err
	}
	s.states.now, s.states.clocks = l.At, nil
	if err := d.Match(c); err != nil {
		return nil, err
	}
	if hasOwnMoments(l) {
		s.states.clocks = s.clocksOf(c, l)
	}
	return c, nil
}

// read turns a line into a call. recorded knows the rules that decided it at the time, or
// is nil.
func (d *decider) read(l *decisionlog.Line, recorded *decider) (*decide.Call, error) {
	if !d.call.Reset() {
		d.call = d.NewCall()
	}
	c := d.call
	c.Domain = l.Domain
	c.ID, c.Owner, c.IsSettlement = l.ID, l.Caller, l.Kind == decisionlog.Settled
	c.SettleWithin, c.HasSettleWithin = l.SettleWithin, l.SettleWithin != 0
	for len(d.assigned) < len(l.Descriptors) {
		d.assigned = append(d.assigned, said{})
	}
	for i := range l.Descriptors {
		from := &l.Descriptors[i]
		c.Descriptors = append(c.Descriptors, decide.Descriptor{})
		to := &c.Descriptors[i]
		to.Entries, to.HasHitsAddend, to.Reports, to.IsDoubtful, to.Refund = from.Entries, !from.Kept, from.Reports, from.Doubtful, from.Cost < 0
		to.HitsAddend = uint64(max(from.Cost, -from.Cost))
		if own := ownNumbers(from); own != nil {
			to.Own = decide.Override{
				Set: true, Requests: uint64(own.Requests), Period: own.Period, Burst: burstOf(own), Apart: own.Apart, Names: &ownNames,
			}
		}
		to.Found = d.assigned[i].read(l, from, recorded)
	}
	return c, c.Check(true)
}

// Words of refusals in a line.
const (
	blocked   = "blocked"
	unmatched = "unmatched"
)

var ownNames = decide.OwnNames{Whole: "numbers"}

// ownNumbers returns the numbers that a request brought.
func ownNumbers(d *decisionlog.Descriptor) *decisionlog.Numbers {
	if len(d.Limits) != 1 {
		return nil
	}
	if n := d.Limits[0].Numbers; n != nil && !n.Assigned {
		return n
	}
	return nil
}

// burstOf returns the burst of a request's own numbers; 0 if there is none.
func burstOf(n *decisionlog.Numbers) uint64 {
	if n.Burst == n.Requests {
		return 0
	}
	return uint64(n.Burst)
}

// nothing is assigned to most. It is never changed.
var nothing assign.Found

// hasNumbers reports whether a limit of a descriptor has numbers that come from no file.
func hasNumbers(d *decisionlog.Descriptor) bool {
	for i := range d.Limits {
		if d.Limits[i].Numbers != nil {
			return true
		}
	}
	return false
}

// read returns what was assigned to a descriptor when it was recorded.
func (s *said) read(l *decisionlog.Line, d *decisionlog.Descriptor, recorded *decider) *assign.Found {
	if d.Rule != "" && d.Plan == "" && d.Refusal == "" && !d.Unlimited && !hasNumbers(d) {
		return &nothing
	}
	s.found = assign.Found{}
	if d.Refusal == blocked {
		a, block := assign.Assignment{}, assign.Layer{Terms: assign.Terms{Blocked: true}}
		if len(d.Limits) > 0 && d.Limits[0].RetryAfter > 0 {
			block.Until = l.At + d.Limits[0].RetryAfter.Microseconds()
			a.Layers = []assign.Layer{block}
		} else {
			a.Base = block
		}
		s.block = assign.Hold(&a)
		s.found.Blocked = &s.block
	}
	// Without a rule it had a plan that its rule does not have, and that the line does
	// not name.
	if d.Rule == "" && recorded.hasDefault(l, d) || d.Plan != "" && !recorded.isDefault(l, d) {
		s.plan = assign.Hold(&assign.Assignment{Base: assign.Layer{Terms: assign.Terms{Plan: d.Plan}}})
		s.found.Plan = &s.plan
	}
	own := assign.Terms{Unlimited: d.Unlimited}
	for i := range d.Limits {
		if n := d.Limits[i].Numbers; n != nil && n.Assigned {
			numbers := assign.Numbers{Limit: limitName(&d.Limits[i]), Requests: n.Requests, Period: n.Period, Burst: n.Burst, BlockFor: n.BlockFor}
			if n.Calendar != "" {
				numbers.Period = 0 // that of a limit by calendar follows from it
				filed := recorded.limitNamed(numbers.Limit, l, d)
				addCalendar(&own.Calendar, n, filed)
				if filed != nil && filed.Requests == n.Requests && filed.BlockFor == n.BlockFor {
					continue // only its windows were assigned
				}
			}
			own.Numbers = append(own.Numbers, numbers)
		}
	}
	if own.HasMore() {
		s.own = assign.Hold(&assign.Assignment{Base: assign.Layer{Terms: own}})
		s.found.Own = &s.own
	}
	return &s.found
}

// addCalendar adds what was assigned of a limit's windows: where they differ from those that
// the limit had in its file, which may be nil. All limits of a descriptor share one
// calendar.
func addCalendar(to *assign.Calendar, n *decisionlog.Numbers, filed *bucket.Limit) {
	if filed == nil || filed.Calendar.Unit == bucket.NoCalendar {
		to.TimeZone, to.Starts = n.TimeZone, n.Starts
		return
	}
	if c := filed.Calendar; n.TimeZone != c.Zone.String() {
		to.TimeZone = n.TimeZone
	}
	if c := filed.Calendar; n.Starts != c.Starts.In(c.Unit) {
		to.Starts = n.Starts
	}
}

// limitNamed returns the limit of that name that a descriptor's rule or plan had in its
// file when it was recorded, or nil.
func (d *decider) limitNamed(name string, l *decisionlog.Line, of *decisionlog.Descriptor) *bucket.Limit {
	rule := d.rule(l, of)
	if rule != nil && rule.Plans != nil {
		rule = rule.Plans.Plan(of.Plan)
	}
	if rule == nil {
		return nil
	}
	for _, filed := range rule.Limits {
		if filed.Name == name {
			return filed
		}
	}
	return nil
}

// limitName returns the name of a limit as in a file: a line has the algorithm of a limit
// without a name.
func limitName(l *decisionlog.Limit) string {
	if l.Numbers != nil && l.Name == l.Numbers.Algorithm {
		return ""
	}
	return l.Name
}

// rule returns the rule that a descriptor matched when it was recorded, or nil.
func (d *decider) rule(l *decisionlog.Line, of *decisionlog.Descriptor) *rules.Rule {
	if d == nil {
		return nil
	}
	domain := d.rules.Domain(l.Domain)
	if domain == nil {
		return nil
	}
	return domain.Match(of.Entries)
}

// hasDefault reports whether the rule of a descriptor had a plan for those without an
// assigned one.
func (d *decider) hasDefault(l *decisionlog.Line, of *decisionlog.Descriptor) bool {
	rule := d.rule(l, of)
	return rule != nil && rule.Plans != nil && rule.Plans.Default != nil
}

// isDefault reports whether the plan of a descriptor was the default one. It then also
// has the default of other limits.
func (d *decider) isDefault(l *decisionlog.Line, of *decisionlog.Descriptor) bool {
	return d.hasDefault(l, of) && d.rule(l, of).Plans.Default.Plan == of.Plan
}

// hasOwnMoments reports whether limits of a line were decided at other times than the
// line.
func hasOwnMoments(l *decisionlog.Line) bool {
	for i := range l.Descriptors {
		for j := range l.Descriptors[i].Limits {
			if l.Descriptors[i].Limits[j].At != 0 {
				return true
			}
		}
	}
	return false
}

// clocksOf returns the time of each hit: that of the limit in the line, or otherwise that
// of the line.
func (s *side) clocksOf(c *decide.Call, l *decisionlog.Line) []hitClock {
	s.clocks = s.clocks[:0]
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		for j, limit := range o.Limits {
			at := l.At
			if r := recordedLimit(&l.Descriptors[i], o, j); r != nil && r.At != 0 && !isTick(limit, r.At, at) {
				at = r.At
			}
			s.clocks = append(s.clocks, hitClock{unsafe.SliceData(o.Hits[j].Key), at})
		}
	}
	return s.clocks
}

// isTick reports whether a time is the tick of a limit that contains another time.
func isTick(l *bucket.Limit, tick, at int64) bool {
	return l.Quantum > 1 && tick == at/l.Quantum*l.Quantum
}

// recordedLimit returns what was recorded of limit j of an outcome, or nil.
func recordedLimit(d *decisionlog.Descriptor, o *decide.Outcome, j int) *decisionlog.Limit {
	name := tally.LimitName(o.Limits[j])
	if len(d.Limits) == len(o.Limits) && (d.Limits[j].Name == name || o.Own != nil) {
		return &d.Limits[j]
	}
	for k := range d.Limits {
		if d.Limits[k].Name == name {
			return &d.Limits[k]
		}
	}
	return nil
}

// giveBack gives back what a line says was given back, of takes that this side allowed.
func (s *side) giveBack(d *decider, l *decisionlog.Line, recorded *decider) error {
	c, err := s.match(d, l, recorded)
	if err != nil {
		return err
	}
	var hits []bucket.Hit
	var decisions []bucket.Decision
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		for j, h := range o.Hits {
			r := recordedLimit(&l.Descriptors[i], o, j)
			if r == nil || r.TakenAt <= 0 || r.Degraded || s.refused.has(&h, r.TakenAt) {
				continue
			}
			h.Role = bucket.Aside // each was charged separately
			hits, decisions = append(hits, h), append(decisions, bucket.Decision{At: r.TakenAt})
		}
	}
	if l.ID != "" {
		return s.unreserve(c, hits)
	}
	return s.states.GiveBack(context.Background(), hits, decisions)
}
