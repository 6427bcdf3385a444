package limitsfile

import (
	"fmt"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// holdSpelling is how the numbers of a concurrency are written.
var holdSpelling = numberSpelling{requests: "requests", period: "hold", algorithm: bucket.Concurrency, postpaid: bucket.PostpaidNever}

// isConcurrency reports whether a limit or domain names the algorithm concurrency.
func (p *reader) isConcurrency(o *yamlfile.Object) bool {
	v, ok := o.Field("algorithm")
	return ok && p.Follow(v).Value == bucket.Concurrency.String()
}

// hasHold reports whether the numbers of a concurrency are written as they must be, and
// reports an error if not.
func (p *reader) hasHold(o *yamlfile.Object) bool {
	const allowed = "requests, how many may be in flight at once, with hold, how long a holder that is not heard of keeps its slot"
	good := true
	for _, name := range [...]string{"period", "calendar", "time_zone", "starts", "requests_per_unit", "unit"} {
		if o.Has(name) {
			p.Bad(o.Key(name), name+" on a concurrency", allowed)
			good = false
		}
	}
	if good && o.First("requests", "hold") == "" {
		p.Bad(o.Value, "a concurrency without numbers", allowed)
		good = false
	}
	return good
}

// rateAlgorithm reads the algorithm of a whole domain.
func (p *reader) rateAlgorithm(o *yamlfile.Object) bucket.Algorithm {
	v, ok := o.Field("algorithm")
	switch {
	case !ok:
		return 0
	case p.isConcurrency(o):
		p.Bad(v, "concurrency for all limits of a domain", "concurrency at each limit that counts requests in flight, since it needs a hold, and a last entry that names the holder")
		return 0
	}
	a, _ := yamlfile.OneOf(p.Reader, v, rateAlgorithms()...)
	return a
}

// rateAlgorithms are those that a domain may have.
func rateAlgorithms() []bucket.Algorithm {
	return slices.DeleteFunc(bucket.Algorithms(), bucket.Algorithm.HasHolders)
}

// holders checks a rule whose limits may count requests in flight: the value of its last
// entry then names the holder.
func (p *reader) holders(o *yamlfile.Object, n *rules.Node, r *rules.Rule) {
	hasHolders, hasRates := false, false
	r.Each(func(each *rules.Rule) {
		for _, l := range each.Limits {
			hasHolders = hasHolders || l.Algorithm.HasHolders()
			hasRates = hasRates || !l.Algorithm.HasHolders()
		}
	})
	if !hasHolders {
		return
	}
	if hasRates {
		p.Bad(o.Key(o.First(kindsOfLimits...)), "a rate beside a concurrency", "either of them in a rule: the last entry names the holder, so the rate would be another for each holder; a rate for all stands on the descriptor above")
	}
	if n.Networks() != nil {
		p.Bad(o.Key(o.First("cidr", "network")), o.First("cidr", "network")+" on a concurrency", "it on a descriptor above: the value of the last entry names the holder")
	}
	if n.IsExact() {
		p.Warn(o.Key("value"), "is the only holder that there can be, since the value of the last entry names it: it has one slot however many requests are in flight, and none is denied; leave the value out")
	}
}

// refuseTagOfHolder reports a hash_tag that names the holder of a rule: the keys of one
// limit would be all over a cluster.
func (p *parser) refuseTagOfHolder(hashTag string, all []*rules.Rule) {
	if hashTag == "" {
		return
	}
	for _, r := range all {
		entries := r.Entries()
		if !r.HasHolders || entries[len(entries)-1].Key != hashTag {
			continue
		}
		at := p.tagAt
		if at == (yamlfile.Position{}) {
			at = p.nameAt // the tag is in another file
		}
		p.BadAt(at, fmt.Sprintf("the hash_tag %s, which names the holder in the concurrency of the rule %s (line %d)", yamlfile.Quote(hashTag), r.Path(), r.Line),
			"a key before the last one, so that all holders of a limit have one place")
		return
	}
}
