package server

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"sync"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
	"github.com/ratelimitd/ratelimitd/internal/server/scrape"
)

// hitSeries shows the hits that rules counted by the names of envoyproxy/ratelimit. A
// rule that was used has five series, and so has each value that it counts by itself;
// rules that are spelt alike share them, as in envoyproxy/ratelimit.
type hitSeries struct {
	live *rules.Live
	seed maphash.Seed

	mu sync.Mutex
	// joint are the series that several counts add up to, as they were last shown.
	joint map[hitLabels]*jointSeries
}

func newHitSeries(live *rules.Live) *hitSeries {
	return &hitSeries{live: live, seed: maphash.MakeSeed(), joint: make(map[hitLabels]*jointSeries)}
}

// families returns the five counters of hits, for one page.
func (h *hitSeries) families() []scrape.Family {
	p := h.page()
	family := func(name, help string, part func(tally.Hits) uint64) scrape.Family {
		return scrape.Family{
			Name: "ratelimit_service_rate_limit_" + name, Help: help,
			Labels: []string{"domain", "key1", "key2"},
			Each:   func(s *scrape.Series) { p.write(s, part) },
		}
	}
	return []scrape.Family{
		family("total_hits", "Hits that descriptors with a limit asked for.", tally.Hits.Total),
		family("within_limit", "Hits of descriptors that were within their limits.", func(h tally.Hits) uint64 { return h.Within }),
		family("over_limit", "Hits beyond a limit.", func(h tally.Hits) uint64 { return h.Over }),
		family("near_limit", "Hits by which a count came to stand near its limit and not beyond it.", func(h tally.Hits) uint64 { return h.Near }),
		family("shadow_mode", "Hits of descriptors that were over their limit and let pass by shadow_mode.", func(h tally.Hits) uint64 { return h.Shadowed }),
	}
}

// hitLabels are the labels domain, key1 and key2.
type hitLabels [3]string

// hitPage is what a page shows of hits. It holds 16 bytes for a series of each
// counter, and the sums of those that are joint.
type hitPage struct {
	walk hitWalk
	// series are sorted by their hashes. All five counters have these, since each is
	// to be an increase from its first event on.
	series []hitOrigin
	// joint are the sums of series that several counts add up to.
	joint map[hitLabels]tally.Hits
}

// hitOrigin is where a series of hits comes from: the hash of its labels, and the
// counts, or the first of them.
type hitOrigin struct {
	hash uint64
	by   *tally.Counts
}

func byHash(a, b hitOrigin) int { return cmp.Compare(a.hash, b.hash) }

// page looks at what there is to show.
func (h *hitSeries) page() *hitPage {
	h.mu.Lock() // before the rules, so that no page goes back to older ones
	defer h.mu.Unlock()
	p := &hitPage{walk: hitWalk{seed: h.seed}}
	if rules := h.live.Rules(); rules != nil {
		p.walk.domains = rules.Domains()
	}
	p.walk.each(func(by *tally.Counts) bool {
		p.series = append(p.series, hitOrigin{p.walk.hash(), by})
		return true
	})
	slices.SortStableFunc(p.series, byHash)
	shared := make(map[uint64]bool)
	for i := range p.series {
		if i > 0 && p.series[i].hash == p.series[i-1].hash {
			shared[p.series[i].hash] = true
		}
	}
	for labels := range h.joint { // also those that one alone adds up to now
		shared[p.walk.hashOf(labels)] = true
	}
	p.series = slices.CompactFunc(p.series, func(a, b hitOrigin) bool { return a.hash == b.hash })
	if len(shared) > 0 {
		p.joint = h.sums(p, shared)
	}
	return p
}

// sums returns the hits of the joint series. shared has their hashes.
func (h *hitSeries) sums(p *hitPage, shared map[uint64]bool) map[hitLabels]tally.Hits {
	counted := make(map[hitLabels][]countedHits)
	p.walk.each(func(by *tally.Counts) bool {
		if shared[p.walk.hash()] {
			labels := p.walk.copyLabels()
			counted[labels] = append(counted[labels], countedHits{by, by.Hits()})
		}
		return true
	})
	sums := make(map[hitLabels]tally.Hits, len(counted))
	for labels, all := range counted {
		joint := h.joint[labels]
		if joint == nil && len(all) > 1 {
			joint = new(jointSeries)
			h.joint[labels] = joint
		}
		if joint != nil {
			sums[labels] = joint.sum(all)
		}
	}
	maps.DeleteFunc(h.joint, func(labels hitLabels, _ *jointSeries) bool { return counted[labels] == nil })
	return sums
}

// write writes the series of a counter, each once, at the first of its counts. Counts
// that are new since the page began wait for the next.
func (p *hitPage) write(s *scrape.Series, part func(tally.Hits) uint64) {
	p.walk.each(func(by *tally.Counts) bool {
		at, ok := slices.BinarySearchFunc(p.series, hitOrigin{hash: p.walk.hash()}, byHash)
		if !ok || p.series[at].by != by {
			return true
		}
		labels := &p.walk.labels
		hits, ok := p.joint[hitLabels{string(labels[0]), string(labels[1]), string(labels[2])}]
		if !ok {
			hits = by.Hits()
		}
		for i := range labels {
			s.SetBytes(i, labels[i])
		}
		return s.Write(part(hits))
	})
}

// countedHits are the hits that a rule counted, or one of its values.
type countedHits struct {
	by   *tally.Counts
	hits tally.Hits
}

// jointSeries is a series that several counts add up to. It keeps what the counts had
// that a reload removed: if the sum fell by theirs, Prometheus would take that for a
// restart from 0, and count all of the others once more.
type jointSeries struct {
	last []countedHits
	left tally.Hits
}

// sum returns the sum of the counts that there are now and of those that left.
func (s *jointSeries) sum(all []countedHits) tally.Hits {
	here := make(map[*tally.Counts]bool, len(all)) // callers can spell a thousand values alike
	for _, now := range all {
		here[now.by] = true
	}
	for _, before := range s.last {
		if !here[before.by] {
			s.left = s.left.Plus(before.hits)
		}
	}
	s.last = all
	sum := s.left
	for _, now := range all {
		sum = sum.Plus(now.hits)
	}
	return sum
}

// hitWalk goes through the counts of the rules in force, and spells their labels. Its
// memory is reused for each.
type hitWalk struct {
	domains []*rules.Domain
	seed    maphash.Seed
	labels  [3][]byte
	values  []tally.ValueCounts
	entries []bucket.Entry
}

// each calls do for the counts of each rule, and of each of its values, that counted
// hits, with their labels. It ends when do reports false.
func (w *hitWalk) each(do func(*tally.Counts) bool) {
	for _, domain := range w.domains {
		w.labels[0] = appendStatName(w.labels[0][:0], domain.Name)
		for _, rule := range domain.Rules() {
			if counts := &rule.Counts.Counts; counts.HasHits() {
				w.entries = rule.AppendEntries(w.entries[:0])
				if w.spell(); !do(counts) {
					return
				}
			}
			w.values = rule.Counts.AppendValues(w.values[:0])
			for _, v := range w.values {
				if !v.HasHits() {
					continue
				}
				w.entries = rule.AppendEntriesOf(w.entries[:0], v.Value)
				if w.spell(); !do(v.Counts) {
					return
				}
			}
		}
	}
}

// spell makes the labels key1 and key2 of the entries.
func (w *hitWalk) spell() {
	w.labels[1], w.labels[2] = appendStatKeys(w.labels[1][:0], w.labels[2][:0], w.entries)
}

func (w *hitWalk) copyLabels() hitLabels {
	return hitLabels{string(w.labels[0]), string(w.labels[1]), string(w.labels[2])}
}

// hash returns a hash of the labels. Nobody can choose two that have the same, since
// nobody knows the seed.
func (w *hitWalk) hash() uint64 {
	var h maphash.Hash
	h.SetSeed(w.seed)
	for _, label := range w.labels {
		_, _ = h.Write(label)
		_ = h.WriteByte(0xff) // which is in no text
	}
	return h.Sum64()
}

// hashOf is hash for labels that were copied.
func (w *hitWalk) hashOf(labels hitLabels) uint64 {
	var h maphash.Hash
	h.SetSeed(w.seed)
	for _, label := range labels {
		_, _ = h.WriteString(label)
		_ = h.WriteByte(0xff)
	}
	return h.Sum64()
}
