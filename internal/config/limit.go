package config

import (
	"errors"
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// rateLimit reads the one limit of a rule.
func (p *fileParser) rateLimit(descriptor *yamlfile.Object, at *yamlfile.Path, r *Rule, mode bucket.FailureMode) {
	o, ok := p.Nested(descriptor, "rate_limit", at, limitLevel)
	if !ok {
		return
	}
	defer p.Release(o)
	if v := o.Get("unlimited"); v != nil {
		if unlimited, ok := p.Boolean(v, at.Key("unlimited")); !ok || unlimited {
			p.unlimited(o, at, r)
			return
		}
	}
	if l := p.limit(o, at, mode); l != nil {
		r.setReplaces(l, p.replaces(o, at, l.Name))
	}
}

// unlimited reads what stands beside unlimited: true.
func (p *fileParser) unlimited(o *yamlfile.Object, at *yamlfile.Path, r *Rule) {
	r.Unlimited = true
	for _, name := range [...]string{"requests", "period", "requests_per_unit", "unit", "burst", "sub_windows", "algorithm", "postpaid"} {
		if v := o.Get(name); v != nil && !p.idleNumber(o, at, name) {
			p.Bad(o.Key(name), at.Key(name), name+" beside unlimited", "either unlimited: true or numbers")
			break
		}
	}
	r.Name, _ = p.limitName(o, at)
	if names := p.replaces(o, at, r.Name); names != nil {
		r.Replaces = [][]string{names}
	}
}

// idleNumber reports whether a number beside unlimited: true is ignored, with a
// warning, as envoyproxy/ratelimit ignores any but a good unit.
func (p *fileParser) idleNumber(o *yamlfile.Object, at *yamlfile.Path, name string) bool {
	switch name {
	case "requests_per_unit":
		if _, ok := p.Integer(o.Get(name), at.Key(name), 0, bucket.MaxRequests); !ok {
			return true // which is reported
		}
	case "unit":
		if s, ok := p.Text(o.Get(name), at.Key(name), allowedUnits); !ok {
			return true
		} else if _, ok := parseUnit(s); ok {
			return false
		}
	default:
		return false
	}
	return p.Lenient && p.Lax(o.Key(name), at.Key(name), name+" beside unlimited", "", "it is ignored")
}

// rateLimits reads the list of limits of a rule.
func (p *fileParser) rateLimits(n *yaml.Node, at *yamlfile.Path, r *Rule, mode bucket.FailureMode) {
	items, ok := p.List(n, at, "limits")
	if ok && len(items) == 0 {
		p.Bad(n, at, "an empty list", "at least one limit")
	}
	names := make(map[string]int, len(items))
	var limits []limitAt
	for i, item := range items {
		itemAt := at.Item(i)
		o, ok := p.Object(item, itemAt, limitItemLevel)
		if !ok {
			continue
		}
		p.itemName(o, itemAt, names)
		if l := p.limit(o, itemAt, mode); l != nil {
			r.setReplaces(l, p.replaces(o, itemAt, l.Name))
			limits = append(limits, limitAt{l, item, itemAt})
		}
		p.Release(o)
	}
	p.warnNeverBind(limits)
}

// itemName sees to it that each limit of a list has a name of its own. Names
// are read again with the limit.
func (p *fileParser) itemName(o *yamlfile.Object, at *yamlfile.Path, names map[string]int) {
	v := o.Get("name")
	if v == nil {
		p.Bad(o.At, at, "no name", "name: NAME, in every item of rate_limits")
		return
	}
	name, ok := p.limitName(o, at)
	switch {
	case !ok:
	case name == "":
		p.Bad(v, at.Key("name"), "an empty text", fmt.Sprintf("a name of 1 to %d bytes without control characters", maxLimitName))
	case names[name] != 0:
		p.Bad(v, at.Key("name"), fmt.Sprintf("the name %s again, the first is on line %d", yamlfile.Quote(name), names[name]), "a name for each item of rate_limits")
	default:
		names[name] = v.Line
	}
}

// limitName reads the name of a limit, which may be empty as in
// envoyproxy/ratelimit.
func (p *fileParser) limitName(o *yamlfile.Object, at *yamlfile.Path) (string, bool) {
	v := o.Get("name")
	if v == nil {
		return "", true
	}
	at = at.Key("name")
	if t := p.Follow(v, at); t.Kind == yaml.ScalarNode && t.Tag == "!!str" && t.Value == "" {
		return "", true
	}
	return p.name(v, at, "a name", maxLimitName)
}

// spelling is one of the two ways to write the numbers of a limit.
type spelling struct {
	requests, period string
	// algorithm is that of a limit that names none, in a domain that names none.
	algorithm bucket.Algorithm
}

var (
	ourSpelling   = spelling{"requests", "period", bucket.TokenBucket}
	envoySpelling = spelling{"requests_per_unit", "unit", bucket.FixedWindow}
)

func (s spelling) String() string { return s.requests + " with " + s.period }

// limit reads the numbers of a limit; mode is what its rule says of a store
// that fails. It returns nil, and has said why, if they are wrong.
func (p *fileParser) limit(o *yamlfile.Object, at *yamlfile.Path, mode bucket.FailureMode) *bucket.Limit {
	before := len(p.Errs)
	s, ok := p.spelling(o, at)
	spec := bucket.Spec{Algorithm: p.limitAlgorithm(o, at, s), OnStoreFailure: mode}
	spec.Name, _ = p.limitName(o, at)
	var rate bool
	if ok {
		spec.Requests, spec.Period, rate = p.rate(o, at, s)
	}
	if v := o.Get("burst"); v != nil {
		spec.Burst, _ = p.Integer(v, at.Key("burst"), 1, bucket.MaxRequests)
	}
	if v := o.Get("sub_windows"); v != nil {
		spec.SubWindows, _ = p.Integer(v, at.Key("sub_windows"), 1, bucket.MaxSubWindows)
	}
	if v := o.Get("postpaid"); v != nil {
		spec.Postpaid, _ = p.Boolean(v, at.Key("postpaid"))
	}
	l := p.newLimit(o, at, s, spec, rate)
	if len(p.Errs) > before {
		return nil
	}
	return l
}

// spelling tells in which way the numbers are written.
func (p *fileParser) spelling(o *yamlfile.Object, at *yamlfile.Path) (spelling, bool) {
	ours := o.First(ourSpelling.requests, ourSpelling.period)
	envoys := o.First(envoySpelling.requests, envoySpelling.period)
	switch {
	case ours != "" && envoys != "":
		second := yamlfile.Later(o.Key(ours), o.Key(envoys))
		p.Bad(second, at.Key(second.Value), ours+" beside "+envoys, fmt.Sprintf("%s, or %s", ourSpelling, envoySpelling))
		return spelling{}, false
	case ours != "":
		return ourSpelling, true
	case envoys != "":
		return envoySpelling, true
	}
	p.Bad(o.At, at, "no numbers", fmt.Sprintf("%s, or %s", ourSpelling, envoySpelling))
	return spelling{}, false
}

// limitAlgorithm returns 0, and has said why, if the limit's own is wrong.
func (p *fileParser) limitAlgorithm(o *yamlfile.Object, at *yamlfile.Path, s spelling) bucket.Algorithm {
	if v := o.Get("algorithm"); v != nil {
		a, _ := p.algorithmName(v, at.Key("algorithm"))
		return a
	}
	if p.algorithm != 0 {
		return p.algorithm
	}
	return s.algorithm
}

func (p *fileParser) algorithmName(n *yaml.Node, at *yamlfile.Path) (bucket.Algorithm, bool) {
	var names []string
	for _, a := range bucket.Algorithms() {
		names = append(names, a.String())
	}
	s, ok := p.Text(n, at, yamlfile.Commas(names))
	if !ok {
		return 0, false
	}
	a, err := bucket.ParseAlgorithm(s)
	if err != nil {
		p.BadName(n, at, s, names)
		return 0, false
	}
	return a, true
}

// rate reads requests and period in either spelling.
func (p *fileParser) rate(o *yamlfile.Object, at *yamlfile.Path, s spelling) (requests int64, period time.Duration, ok bool) {
	ok = true
	if v := o.Get(s.requests); v != nil {
		requests, ok = p.Integer(v, at.Key(s.requests), 0, bucket.MaxRequests)
	} else if s == ourSpelling {
		// envoyproxy/ratelimit's number may be absent, which is 0.
		p.Bad(o.At, at, "period without requests", s.String())
		ok = false
	}
	v := o.Get(s.period)
	if v == nil {
		p.Bad(o.At, at, s.requests+" without "+s.period, s.String())
		return requests, 0, false
	}
	read := p.period
	if s == envoySpelling {
		read = p.unit
	}
	period, good := read(v, at.Key(s.period))
	return requests, period, ok && good
}

func (p *fileParser) period(n *yaml.Node, at *yamlfile.Path) (time.Duration, bool) {
	s, ok := p.Text(n, at, allowedPeriod)
	if !ok {
		return 0, false
	}
	if d, ok := p.loader.periods[s]; ok {
		return d, true
	}
	d, err := parsePeriod(s)
	if err != nil {
		p.Bad(n, at, err.Error(), allowedPeriod)
		return 0, false
	}
	p.loader.periods[s] = d
	return d, true
}

func (p *fileParser) unit(n *yaml.Node, at *yamlfile.Path) (time.Duration, bool) {
	s, ok := p.Text(n, at, allowedUnits)
	if !ok {
		return 0, false
	}
	d, ok := parseUnit(s)
	if !ok {
		p.BadName(n, at, s, allUnits())
	}
	return d, ok
}

// newLimit makes the limit, or reports what NewLimit holds against the numbers
// at the keys that they were written at. Without a good rate it only checks
// the rest.
func (p *fileParser) newLimit(o *yamlfile.Object, at *yamlfile.Path, s spelling, spec bucket.Spec, rate bool) *bucket.Limit {
	if l := p.loader.limits[spec]; l != nil && rate {
		return l
	}
	if !rate {
		spec.Requests, spec.Period = 1, time.Second
	}
	l, err := bucket.NewLimit(spec)
	if err == nil {
		if rate {
			p.loader.limits[spec] = l
		}
		return l
	}
	if rate || !onlyTogether(err) {
		for _, e := range specErrors(err) {
			p.badSpec(o, at, s, e)
		}
	}
	return nil
}

// onlyTogether reports whether the numbers are wrong beside each other only;
// what is wrong with a number itself comes joined.
func onlyTogether(err error) bool {
	_, alone := err.(*bucket.SpecError)
	return alone
}

func specErrors(err error) []*bucket.SpecError {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*bucket.SpecError
		for _, e := range joined.Unwrap() {
			all = append(all, specErrors(e)...)
		}
		return all
	}
	var e *bucket.SpecError
	if errors.As(err, &e) {
		return []*bucket.SpecError{e}
	}
	return []*bucket.SpecError{{Field: "requests", Found: err.Error()}}
}

func (p *fileParser) badSpec(o *yamlfile.Object, at *yamlfile.Path, s spelling, e *bucket.SpecError) {
	name := e.Field
	switch {
	case name == "algorithm":
		return // reported where it was read
	case name == "requests" && s == envoySpelling:
		name = s.requests
	case name == "period" && s == envoySpelling:
		name = s.period
	}
	n := o.At
	if v := o.Get(name); v != nil {
		n = v
	}
	p.Bad(n, at.Key(name), e.Found, e.Allowed)
}
