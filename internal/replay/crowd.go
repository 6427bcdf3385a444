package replay

import "github.com/ratelimitd/ratelimitd/internal/decisionlog"

// crowds count the subjects of all rules, by the hashes of their entries. They are exact
// up to a number of subjects; beyond it the largest rule is thinned, and its numbers are
// then estimates.
type crowds struct {
	all []*crowd
	// kept is how many hashes they have, maxKept how many they may have.
	kept, maxKept int
}

// DefaultMaxCounted bounds the individually counted subjects, of all rules together. Each
// takes up to 40 bytes: 80 MiB.
const DefaultMaxCounted = 1 << 21

// crowd counts the subjects of a rule.
type crowd struct {
	// hit were denied or shadowed in one of the phases, and quiet never. There are
	// usually few in hit, and they are thinned separately, so that their number stays
	// exact beside millions. quiet is thinned no less than hit: a subject that may be in
	// quiet would be in hit after a denial, and is never in both.
	hit, quiet sample
}

// sample is a set of hashes: all, or those that end in some zero bits, which stand for
// the others.
type sample struct {
	fates map[uint64]fate
	zeros uint
}

// fate is what a subject got so far.
type fate uint8

const (
	askedBefore fate = 1 << iota
	deniedBefore
	shadowedBefore
	askedAfter
	deniedAfter
	shadowedAfter
	// wasDenied and isDenied are before and after, whatever the rule: if other limits
	// have another rule for a descriptor, both rules know both.
	wasDenied
	isDenied
)

// anyHit are the fates of subjects that were not always let pass.
const anyHit = deniedBefore | shadowedBefore | deniedAfter | shadowedAfter | wasDenied | isDenied

// fateOf returns what a verdict in a phase means for its own rule.
func fateOf(p phase, r decisionlog.Result) fate {
	asked, denied, shadowed := askedBefore, deniedBefore, shadowedBefore
	if p == after {
		asked, denied, shadowed = askedAfter, deniedAfter, shadowedAfter
	}
	switch r {
	case decisionlog.Denied:
		return asked | denied
	case decisionlog.Shadowed:
		return asked | shadowed
	}
	return asked
}

// bothFates returns what a result before and one after mean for the rules of both.
func bothFates(before, after decisionlog.Result) (f fate) {
	if before == decisionlog.Denied {
		f |= wasDenied
	}
	if after == decisionlog.Denied {
		f |= isDenied
	}
	return f
}

// see notes what a subject of a rule got.
func (c *crowds) see(r *row, hash uint64, got fate) {
	if r.crowd == nil {
		r.crowd = &crowd{hit: sample{fates: make(map[uint64]fate)}, quiet: sample{fates: make(map[uint64]fate)}}
		c.all = append(c.all, r.crowd)
	}
	c.kept += r.crowd.see(hash, got)
	for c.kept > c.maxKept {
		c.thin()
	}
}

// see returns by how many hashes the crowd has grown.
func (c *crowd) see(hash uint64, got fate) (grown int) {
	was, isQuiet := c.quiet.fates[hash]
	if isQuiet {
		if got &= ^was; got == 0 {
			return 0
		}
		if got&anyHit == 0 {
			c.quiet.fates[hash] = was | got
			return 0
		}
		delete(c.quiet.fates, hash)
		c.hit.fates[hash] = was | got // quiet is thinned no less than hit
		return 0
	}
	was, isHit := c.hit.fates[hash]
	switch {
	case isHit:
		if was|got != was {
			c.hit.fates[hash] = was | got
		}
	case got&anyHit != 0 && c.hit.takes(hash):
		c.hit.fates[hash] = got
		return 1
	case got&anyHit == 0 && c.quiet.takes(hash):
		c.quiet.fates[hash] = got
		return 1
	}
	return 0
}

// thin halves the larger part of the largest crowd.
func (c *crowds) thin() {
	largest := c.all[0]
	for _, other := range c.all {
		if other.kept() > largest.kept() {
			largest = other
		}
	}
	was := largest.kept()
	if len(largest.hit.fates) <= len(largest.quiet.fates) {
		largest.quiet.halve()
	} else if largest.hit.halve(); largest.quiet.zeros < largest.hit.zeros {
		largest.quiet.halve()
	}
	c.kept += largest.kept() - was
}

func (c *crowd) kept() int { return len(c.hit.fates) + len(c.quiet.fates) }

func (s *sample) takes(hash uint64) bool { return hash&(1<<s.zeros-1) == 0 }

// halve keeps the hashes that end in one more zero, and releases the memory of the
// others.
func (s *sample) halve() {
	s.zeros++
	rest := make(map[uint64]fate, len(s.fates)/2)
	for hash, got := range s.fates {
		if s.takes(hash) {
			rest[hash] = got
		}
	}
	s.fates = rest
}

// SubjectTally counts subjects of a rule, or of all rules.
type SubjectTally struct {
	// Asked are those that asked, whatever the result.
	Asked uint64 `json:"asked"`
	// Denied are those with a denied request, and Shadowed those that exceeded a limit
	// that is not in force.
	Denied   uint64 `json:"denied"`
	Shadowed uint64 `json:"shadowed"`
}

// SubjectCounts compares the subjects of a rule, or of all rules; in the latter case a
// subject that asked under several rules counts for each.
type SubjectCounts struct {
	Before SubjectTally `json:"before"`
	After  SubjectTally `json:"after"`
	// NewlyDenied were never denied before and are now, NewlyAllowed the reverse.
	NewlyDenied  uint64 `json:"newly_denied"`
	NewlyAllowed uint64 `json:"newly_allowed"`
	// Estimated is set if there were too many to count individually: then the number that
	// asked is an estimate, and if HitEstimated is set, so are the others.
	Estimated    bool `json:"estimated"`
	HitEstimated bool `json:"denied_estimated"`
}

// counts returns what is known about the subjects of a crowd, which may be nil.
func (c *crowd) counts() (n SubjectCounts) {
	if c == nil {
		return n
	}
	n.Estimated, n.HitEstimated = c.quiet.zeros > 0, c.hit.zeros > 0
	for _, s := range []*sample{&c.hit, &c.quiet} {
		each := uint64(1) << s.zeros
		for _, got := range s.fates {
			n.add(got, each)
		}
	}
	return n
}

// add counts a number of subjects with a fate.
func (n *SubjectCounts) add(got fate, each uint64) {
	for _, of := range []struct {
		fate fate
		to   *uint64
	}{
		{askedBefore, &n.Before.Asked}, {deniedBefore, &n.Before.Denied}, {shadowedBefore, &n.Before.Shadowed},
		{askedAfter, &n.After.Asked}, {deniedAfter, &n.After.Denied}, {shadowedAfter, &n.After.Shadowed},
	} {
		if got&of.fate != 0 {
			*of.to += each
		}
	}
	switch got & (wasDenied | isDenied) {
	case isDenied:
		if got&deniedAfter != 0 {
			n.NewlyDenied += each
		}
	case wasDenied:
		if got&deniedBefore != 0 {
			n.NewlyAllowed += each
		}
	}
}

// plus adds the counts of another rule.
func (n *SubjectCounts) plus(other *SubjectCounts) {
	for _, of := range []struct{ to, from *SubjectTally }{{&n.Before, &other.Before}, {&n.After, &other.After}} {
		of.to.Asked += of.from.Asked
		of.to.Denied += of.from.Denied
		of.to.Shadowed += of.from.Shadowed
	}
	n.NewlyDenied += other.NewlyDenied
	n.NewlyAllowed += other.NewlyAllowed
	n.Estimated = n.Estimated || other.Estimated
	n.HitEstimated = n.HitEstimated || other.HitEstimated
}
