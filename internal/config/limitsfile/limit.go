package limitsfile

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/period"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// rateLimit reads the single limit of a rule.
func (p *reader) rateLimit(descriptor *yamlfile.Object, r *rules.Rule, mode bucket.FailureMode) {
	o, ok := p.Nested(descriptor, "rate_limit", limitLevel)
	if !ok {
		return
	}
	p.oneLimit(o, r, mode)
}

// oneLimit reads the single limit of a rule or plan.
func (p *reader) oneLimit(o *yamlfile.Object, r *rules.Rule, mode bucket.FailureMode) {
	if v, ok := o.Field("unlimited"); ok {
		if unlimited, ok := p.Boolean(v); !ok || unlimited {
			p.unlimited(o, r)
			return
		}
	}
	if l := p.limit(o, mode, false); l != nil {
		addLimit(r, l, p.replaces(o, l.Name))
	}
}

// unlimited reads a rate_limit that has unlimited: true.
func (p *reader) unlimited(o *yamlfile.Object, r *rules.Rule) {
	r.Unlimited = true
	for _, f := range limitFields {
		name := f.Name
		if name == "replaces" || !o.Has(name) {
			continue
		}
		const allowed = "either unlimited: true or numbers"
		if name != "requests_per_unit" && name != "unit" { // which envoyproxy/ratelimit ignores
			p.Bad(o.Key(name), name+" beside unlimited", allowed)
			break
		} else if !p.Lax(o.Key(name), name+" beside unlimited", allowed, "it is ignored") {
			break
		}
	}
	r.Name, _ = p.limitName(o)
	if names := p.replaces(o, r.Name); names != nil {
		r.Replaces = [][]string{names}
	}
}

// rateLimits reads the list of limits of a rule.
func (p *reader) rateLimits(v yamlfile.Value, r *rules.Rule, mode bucket.FailureMode) {
	items, ok := p.List(v, "limits")
	if ok && items.Len() == 0 {
		p.Bad(v, "an empty list", "at least one limit")
	}
	names := make(map[string]int, items.Len())
	for item := range items.All() {
		o, ok := p.Object(item, limitItemLevel)
		if !ok {
			continue
		}
		p.itemName(o, names)
		if l := p.limit(o, mode, true); l != nil {
			addLimit(r, l, p.replaces(o, l.Name))
			if l.Unenforced != 0 && len(r.Limits) > rules.MaxUnenforced {
				p.Bad(o.Value, fmt.Sprintf("shadow_mode or enforce on limit %d of the list", len(r.Limits)), fmt.Sprintf("these on the first %d", rules.MaxUnenforced))
			}
		}
	}
	p.warnLease(v, r.Limits)
}

// itemName checks that each limit of a list has a name of its own. The limit's own reader
// reads the name again.
func (p *reader) itemName(o *yamlfile.Object, names map[string]int) {
	v, ok := p.Needed(o, "name", "name: NAME, in every item of rate_limits")
	if !ok {
		return
	}
	name, ok := p.limitName(o)
	switch {
	case !ok:
	case name == "":
		p.Bad(v, "an empty text", fmt.Sprintf("a name of 1 to %d bytes without control characters", maxLimitName))
	case names[name] != 0:
		p.Bad(v, fmt.Sprintf("the name %s again, the first is on line %d", yamlfile.Quote(name), names[name]), "a name for each item of rate_limits")
	default:
		names[name] = v.Node.Line
	}
}

// limitName reads the name of a limit, which may be empty, as in envoyproxy/ratelimit.
func (p *reader) limitName(o *yamlfile.Object) (string, bool) {
	v, ok := o.Field("name")
	if !ok {
		return "", true
	}
	if t := p.Follow(v); t.Kind == yaml.ScalarNode && t.Tag == "!!str" && t.Value == "" {
		return "", true
	}
	return p.name(v, "a name", maxLimitName)
}

// numberSpelling is one of the ways to write the numbers of a limit.
type numberSpelling struct {
	requests, period string
	// periods are the keys that may be in the place of period too, for errors.
	periods string
	// algorithm applies to a limit that names none, in a domain that names none.
	algorithm bucket.Algorithm
	// postpaid applies to a limit that does not say.
	postpaid bucket.Postpaid
}

var (
	ourSpelling      = numberSpelling{requests: "requests", period: "period", periods: " or calendar", algorithm: bucket.TokenBucket, postpaid: bucket.PostpaidNever}
	calendarSpelling = numberSpelling{requests: "requests", period: "calendar", algorithm: bucket.FixedWindow, postpaid: bucket.PostpaidNever}
	envoySpelling    = numberSpelling{requests: "requests_per_unit", period: "unit", algorithm: bucket.FixedWindow, postpaid: bucket.PostpaidAuto}
)

func (s numberSpelling) String() string { return s.requests + " with " + s.period + s.periods }

// limit reads the numbers of a limit, either the only one or an item of a list; mode is
// the failure mode of its rule. If they are wrong, it reports that and returns nil.
func (p *reader) limit(o *yamlfile.Object, mode bucket.FailureMode, isItem bool) *bucket.Limit {
	before := len(p.Errs)
	s, ok := p.spelling(o)
	spec := bucket.Spec{Algorithm: p.limitAlgorithm(o, s), Postpaid: s.postpaid, OnStoreFailure: mode}
	spec.Name, _ = p.limitName(o)
	var rate bool
	p.checkCalendar(o)
	switch {
	case !ok:
	case s == calendarSpelling:
		spec.Requests, rate = p.requests(o, s)
		var good bool
		spec.Calendar, good = p.calendar(o)
		rate = rate && good
	default:
		spec.Requests, spec.Period, rate = p.rate(o, s)
	}
	if v, ok := o.Field("burst"); ok {
		spec.Burst, _ = p.Integer(v, burstRange)
	}
	if v, ok := o.Field("sub_windows"); ok {
		spec.SubWindows, _ = p.Integer(v, subWindowsRange)
	}
	if v, ok := o.Field("block_for"); ok {
		spec.BlockFor, _ = p.span(v, allowedBlockFor)
		spec.Postpaid = bucket.PostpaidNever // which a pause could not stop
	}
	if v, ok := o.Field("lease"); ok {
		spec.Lease, _ = p.span(v, allowedLease)
		spec.Postpaid = bucket.PostpaidNever // since it is charged before it is used
	}
	if v, ok := o.Field("postpaid"); ok {
		spec.Postpaid = p.postpaid(v)
	}
	spec.Unenforced = p.unenforced(o, isItem)
	l := p.newLimit(o, s, spec, rate)
	if len(p.Errs) > before {
		return nil
	}
	p.warnQuota(o, s, l)
	return l
}

// spelling determines how the numbers are written.
func (p *reader) spelling(o *yamlfile.Object) (numberSpelling, bool) {
	if p.isConcurrency(o) {
		return holdSpelling, p.hasHold(o)
	}
	if o.Has("hold") {
		p.Bad(o.Key("hold"), "hold without algorithm: concurrency", "hold beside algorithm: concurrency, which counts requests in flight")
		return numberSpelling{}, false
	}
	ours := o.First(ourSpelling.requests, ourSpelling.period, calendarSpelling.period)
	envoys := o.First(envoySpelling.requests, envoySpelling.period)
	switch {
	case ours != "" && envoys != "":
		p.Bad(yamlfile.Later(o.Key(ours), o.Key(envoys)), ours+" beside "+envoys, fmt.Sprintf("%s, or %s", ourSpelling, envoySpelling))
		return numberSpelling{}, false
	case o.Has(calendarSpelling.period) && o.Has(ourSpelling.period):
		p.Bad(yamlfile.Later(o.Key(ourSpelling.period), o.Key(calendarSpelling.period)), "period beside calendar", fmt.Sprintf("%s, or %s", ourSpelling, envoySpelling))
		return numberSpelling{}, false
	case o.Has(calendarSpelling.period):
		return calendarSpelling, true
	case ours != "":
		return ourSpelling, true
	case envoys != "":
		return envoySpelling, true
	}
	p.Bad(o.Value, "no numbers", fmt.Sprintf("%s, or %s", ourSpelling, envoySpelling))
	return numberSpelling{}, false
}

// limitAlgorithm returns the limit's algorithm. If its own is wrong, it reports that and
// returns 0.
func (p *reader) limitAlgorithm(o *yamlfile.Object, s numberSpelling) bucket.Algorithm {
	if v, ok := o.Field("algorithm"); ok {
		a, ok := yamlfile.OneOf(p.Reader, v, bucket.Algorithms()...)
		if s == calendarSpelling && ok {
			return s.algorithm // see checkCalendar
		}
		return a
	}
	if p.algorithm != 0 && s != calendarSpelling {
		return p.algorithm
	}
	return s.algorithm
}

// postpaid reads true, false or auto.
func (p *reader) postpaid(v yamlfile.Value) bucket.Postpaid {
	switch always, isAuto, _ := p.BooleanOr(v, bucket.PostpaidAuto.String()); {
	case isAuto:
		return bucket.PostpaidAuto
	case always:
		return bucket.PostpaidAlways
	default:
		return bucket.PostpaidNever
	}
}

const allowedEnforce = "0% to 100%, with at most two decimals: the share of subjects that the limit may deny"

// unenforced reads enforce, and the shadow_mode of an item of a list.
func (p *reader) unenforced(o *yamlfile.Object, isItem bool) int64 {
	n := int64(0)
	if v, ok := o.Field("enforce"); ok {
		if s, ok := p.Text(v, allowedEnforce); ok {
			share, err := parseShare(s)
			if err != nil {
				p.Bad(v, yamlfile.Quote(s), allowedEnforce)
			}
			n = bucket.AllSubjects - share
		}
	}
	if !isItem {
		return n
	}
	if v, ok := o.Field("shadow_mode"); ok {
		if shadow, ok := p.Boolean(v); ok && shadow {
			if o.Has("enforce") {
				p.Bad(yamlfile.Later(o.Key("enforce"), o.Key("shadow_mode")), "shadow_mode beside enforce", "one of them: a limit in shadow mode denies nothing")
			}
			n = bucket.AllSubjects
		}
	}
	return n
}

var errShare = errors.New("no percentage")

// parseShare reads a percentage into ten-thousandths.
func parseShare(s string) (int64, error) {
	text, ok := strings.CutSuffix(s, "%")
	whole, decimals, point := strings.Cut(text, ".")
	if !ok || len(whole) > 3 || len(decimals) > 2 || point && decimals == "" {
		return 0, errShare
	}
	n, err := strconv.ParseUint(whole+(decimals + "00")[:2], 10, 32)
	if err != nil || whole == "" || n > bucket.AllSubjects {
		return 0, errShare
	}
	return int64(n), nil
}

// requests reads the number of requests in any spelling.
func (p *reader) requests(o *yamlfile.Object, s numberSpelling) (requests int64, ok bool) {
	if v, given := o.Field(s.requests); given {
		return p.Integer(v, requestsRange)
	}
	if s == envoySpelling { // whose number may be absent, which is 0
		return 0, true
	}
	p.Bad(o.Value, s.period+" without requests", s.String())
	return 0, false
}

// rate reads requests and period, in our spelling or envoyproxy/ratelimit's.
func (p *reader) rate(o *yamlfile.Object, s numberSpelling) (requests int64, period time.Duration, ok bool) {
	requests, ok = p.requests(o, s)
	v, given := o.Field(s.period)
	if !given {
		p.Bad(o.Value, s.requests+" without "+s.period, s.String())
		return requests, 0, false
	}
	read := p.period
	if s == envoySpelling {
		read = p.unit
	}
	period, good := read(v)
	return requests, period, ok && good
}

const allowedLease = bucket.AllowedLease + `, such as "100ms"`

const allowedBlockFor = bucket.AllowedBlockFor + `, such as "10m" or "1.5h" (ms, s, m, h, d)`

func (p *reader) period(v yamlfile.Value) (time.Duration, bool) { return p.span(v, period.Allowed) }

// span reads a span of time of which the error says what is allowed.
func (p *reader) span(v yamlfile.Value, allowed string) (time.Duration, bool) {
	s, ok := p.Text(v, allowed)
	if !ok {
		return 0, false
	}
	d, err := period.Parse(s)
	if err != nil {
		p.Bad(v, err.Error(), allowed)
		return 0, false
	}
	return d, true
}

func (p *reader) unit(v yamlfile.Value) (time.Duration, bool) {
	s, ok := p.Text(v, period.AllowedUnits)
	if !ok {
		return 0, false
	}
	d, ok := period.ParseUnit(s)
	switch {
	case !ok && p.Made:
		p.Bad(v, "the invalid rate limit unit "+s, period.AllowedUnits)
	case !ok:
		p.BadName(v, s, period.Units())
	}
	return d, ok
}

// newLimit makes the limit, or reports the errors of NewLimit at the keys of the numbers.
// Without a valid rate it only checks the other numbers.
func (p *reader) newLimit(o *yamlfile.Object, s numberSpelling, spec bucket.Spec, rate bool) *bucket.Limit {
	if l := p.shared.limits[spec]; l != nil && rate {
		return l
	}
	if !rate {
		spec.Requests, spec.Period, spec.Calendar, spec.Lease = 1, time.Second, bucket.Calendar{}, 0
	}
	l, err := bucket.NewLimit(spec)
	if err == nil {
		if rate {
			p.shared.limits[spec] = l
		}
		return l
	}
	if rate || !onlyTogether(err) {
		for _, e := range specErrors(err) {
			p.badSpec(o, s, e)
		}
	}
	return nil
}

// onlyTogether reports whether each number is valid by itself and only the combination is
// wrong. The errors of single numbers come joined.
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

func (p *reader) badSpec(o *yamlfile.Object, s numberSpelling, e *bucket.SpecError) {
	name := e.Field
	switch {
	case name == "algorithm":
		return // reported where it was read
	case name == "requests" && s.requests != "":
		name = s.requests
	case name == "period" && s.period != "":
		name = s.period
	}
	v, ok := o.Field(name)
	if !ok {
		v = o.Child(name, o.Node)
	}
	p.Bad(v, e.Found, e.Allowed)
}
