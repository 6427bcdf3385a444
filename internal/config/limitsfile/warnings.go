package limitsfile

import (
	"fmt"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// listedNode is a descriptor of a list, and its position.
type listedNode struct {
	*rules.Node
	at yamlfile.Position
}

// refuseManyPatterns reports the first pattern of the list that is one too many for its
// key.
func (p *reader) refuseManyPatterns(up *rules.Node, list []listedNode) {
	for k := range up.AllKeys {
		if k.Globs().Len() <= rules.MaxPatterns {
			continue
		}
		for _, n := range list {
			if n.Node == k.Patterns()[rules.MaxPatterns] {
				p.BadAt(n.at, fmt.Sprintf("%d patterns of the key %s at this level", k.Globs().Len(), yamlfile.Quote(k.Name())),
					fmt.Sprintf("at most %d, which are tried one after the other; part them by a key above, or use values without *", rules.MaxPatterns))
			}
		}
	}
}

// warnNeverMatch warns of descriptors that never match because others of the list match
// the same values first.
func (p *reader) warnNeverMatch(up *rules.Node, list []listedNode) {
	for _, n := range list {
		value := n.Entry().Value
		k := up.Key(n.Entry().Key)
		if value == "" {
			if all := k.Globs().FirstThatCoversAll(); all >= 0 {
				p.WarnAt(n.at, "never matches: the pattern %s of the same key matches every value", yamlfile.Quote(k.Globs().Text(all)))
			}
			continue
		}
		if k.Globs().IsTooLong(value) {
			p.WarnAt(n.at, "never matches: it is longer than the %d bytes of a value up to which patterns with a text between stars are tried where a key has more than %d of these",
				rules.MaxSearchedValue, rules.FewInner)
			continue
		}
		if first := k.Globs().FirstThatCovers(value); k.Patterns()[first] != n.Node {
			p.WarnAt(n.at, "never matches: the pattern %s before it matches all that %s does", yamlfile.Quote(k.Globs().Text(first)), yamlfile.Quote(value))
		}
	}
}

// quotaPeriod is the period from which on requests are more likely a quota, per day or
// month, than a rate.
const quotaPeriod = 24 * time.Hour

// warnQuota warns of a bucket that is probably meant as a quota: it admits its burst at
// once and, in its first period, as much again.
func (p *reader) warnQuota(o *yamlfile.Object, s numberSpelling, l *bucket.Limit) {
	if !l.Algorithm.IsBucket() || l.Period < quotaPeriod || l.Requests == 0 || o.Has("burst") {
		return
	}
	p.Warn(o.Key(s.period), "a %s of %s %s admits %s, so up to %s in its first %s; for a quota choose algorithm: fixed_window or sliding_window; where a bucket is meant, write burst: %d",
		l.Algorithm, words.Requests(l), words.PerPeriod(l.Period), words.Numbers(l), words.Thousands(l.Requests+l.Burst), words.Span(l.Period), l.Burst)
}

// warnLease warns of leases that cost something and are never used, since other limits of the
// list have none.
func (p *reader) warnLease(list yamlfile.Value, limits []*bucket.Limit) {
	hasLease := func(l *bucket.Limit) bool { return l.Lease != 0 }
	without := func(l *bucket.Limit) bool { return l.Lease == 0 }
	if slices.ContainsFunc(limits, hasLease) && slices.ContainsFunc(limits, without) {
		p.Warn(list, "a lease is used only if all limits of the list have one")
	}
}
