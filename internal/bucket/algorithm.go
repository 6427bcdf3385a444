package bucket

// Algorithm names how a limit counts.
type Algorithm uint8

// The algorithms. TokenBucket, GCRA and LeakyBucket admit the same requests;
// LeakyBucket also says how long to hold each one to get an even stream. Concurrency
// counts requests in flight, all others requests per period.
const (
	TokenBucket Algorithm = iota + 1
	GCRA
	LeakyBucket
	FixedWindow
	SlidingWindow
	SlidingLog
	Concurrency
)

// algorithm is what the limits of an Algorithm are and do. The functions are steps on a
// State, and promise what the methods of Limit in step.go do; they are called
// only for limits with requests above 0, and for those with holders. TestTableIsWhole says
// which of them an algorithm may lack.
type algorithm struct {
	name string
	// maxRequests bounds the requests of a Spec, and whyMaxRequests says why.
	maxRequests    int64
	whyMaxRequests string
	// hasBurst is whether what was taken comes back gradually, so that the capacity may
	// differ from the requests.
	hasBurst bool
	// hasSubWindows is whether a Spec may have SubWindows.
	hasSubWindows bool
	// hasSpans is whether a State has Spans, which grow with the hits.
	hasSpans bool
	// hasHolders is whether hits name holders: then a negative cost releases what the
	// holder has, whatever its group gets.
	hasHolders bool

	// derive sets what a Limit has besides its Spec; nil if that is nothing.
	derive func(l *Limit) error
	decide func(l *Limit, s *State, clock int64, demand Demand) Decision
	// charge reports false if it found nothing to do.
	charge func(l *Limit, s *State, clock int64, demand Demand) (wrote bool)
	// giveBack gives the demand's cost back, which is all or a part of what a hit took.
	// older is what its caller took before and still has, if that is known.
	giveBack func(l *Limit, s *State, clock int64, demand Demand, took Portion, older []Portion)
	// level returns how much of a state still counts at clock, in units of a bucket or else
	// in costs; nil if a hit with a cost is no charge.
	level func(l *Limit, s *State, clock int64) int64
	// remaining is what remains by a state that was just written.
	remaining func(l *Limit, s *State) int64
	// mend is for a state whose last moment is further ahead than the skew.
	mend func(l *Limit, s *State, clock, skew int64) bool
	// numbers is Limit.Numbers; nil if there are none.
	numbers func(l *Limit) [4]int64
	// periodEnd is the end of the limit's period that contains at; nil if periods do not
	// begin at certain moments.
	periodEnd func(l *Limit, at int64) int64
}
