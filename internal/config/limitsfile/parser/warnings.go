package parser

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/glob"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// generalNode is a descriptor without an exact value, and its position.
type generalNode struct {
	*rules.Node
	at yamlfile.Position
}

// warnPatterns gives the warnings that need all patterns of a list.
func (p *reader) warnPatterns(up *rules.Node, list []generalNode) {
	p.warnNeverMatch(up, list)
	p.warnCostly(up, list)
}

// warnNeverMatch warns of descriptors that never match because others of the list match
// the same values first.
func (p *reader) warnNeverMatch(up *rules.Node, list []generalNode) {
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
				glob.MaxSearchedValue, glob.FewInner)
			continue
		}
		if k.Globs().IsCrowded() {
			continue
		}
		if first := k.Globs().FirstThatCovers(value); k.Patterns()[first] != n.Node {
			p.WarnAt(n.at, "never matches: the pattern %s before it matches all that %s does", yamlfile.Quote(k.Globs().Text(first)), yamlfile.Quote(value))
		}
	}
}

const (
	// usualValue is roughly the length in bytes of a value in a request with as many
	// entries and as much text as the default bounds allow.
	usualValue = 320
	// manyTries is the number of patterns from which on such a value causes a warning: at
	// some 50 ns per try, a request takes a tenth of a second.
	manyTries = 500
)

// warnCostly warns of keys for which a crafted request takes long to match.
func (p *reader) warnCostly(up *rules.Node, list []generalNode) {
	for k := range up.AllKeys {
		tries, pattern, together := k.Globs().Costliest(usualValue)
		if tries < manyTries {
			continue
		}
		for _, n := range list {
			if n.Node == k.Patterns()[pattern] {
				p.WarnAt(n.at, "makes the key %s costly to match: a value of %d bytes can be made that is tried on %d of its %d patterns, since the text that tells this one from others best is in %d others too; "+
					"give each pattern, before, after or between its stars, a text of some bytes that few others have, or part them by a key above",
					yamlfile.Quote(k.Name()), usualValue, tries, k.Globs().Len(), together-1)
			}
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
