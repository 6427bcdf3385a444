package replay

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
)

// FitBy says what a share is a share of.
type FitBy uint8

// What a limit has to let pass.
const (
	// BySubject is a share of the subjects, none of whose requests it denies.
	BySubject FitBy = iota
	// ByRequest is a share of the requests, whoever makes them.
	ByRequest
)

// String returns the word for it in a report: "subject" or "request".
func (b FitBy) String() string { return [...]string{"subject", "request"}[b] }

// MarshalText implements encoding.TextMarshaler.
func (b FitBy) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// Fit is what a limit would have to say for a share of its subjects to pass entirely, or
// of its requests to pass.
//
// The numbers are found by deciding all requests that asked the limit again, with its own
// steps and each subject's own state, for one candidate after the other: first the
// smallest requests, by doubling and then bisecting, with the burst in the file's
// proportion to them; then with these requests the smallest burst, by bisecting. The
// limit is considered alone: what others of the rule deny is charged all the same, and of
// a rule with n limits each may deny an n-th of what the rule may. Numbers from an
// assignment or a request are left out, and so are limits of requests in flight, give-backs,
// so that what was given back counts as used, and settlements, so that what was reserved
// does.
//
// By subject, or if all requests cost the same, more requests or burst never let fewer
// pass, and the numbers are exactly the smallest ones. By request, with different costs,
// that need not be so: the numbers let the share pass, and some smaller ones may as well,
// though not those with one request less, nor those with a burst of one less.
type Fit struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	Limit  string `json:"limit"`
	By     FitBy  `json:"by"`
	// Asked counts the requests with a cost that asked the limit, from Subjects.
	Asked    uint64 `json:"asked"`
	Subjects int    `json:"subjects"`
	// Share is what has to pass, 0 to 1: that of Options.Fit, or more if the rule has
	// other limits too.
	Share float64 `json:"share"`
	// Requests and Burst are the current ones. Burst is 0 if the algorithm has none.
	Requests int64 `json:"requests"`
	Burst    int64 `json:"burst"`
	// Passed is the share of the requests that pass with them, 0 to 1, and PassedWhole
	// counts the subjects whose requests all pass.
	Passed      float64 `json:"passed"`
	PassedWhole int     `json:"passed_whole"`
	// Proposed are the smallest, or 0 if there is a Problem.
	ProposedRequests    int64   `json:"proposed_requests"`
	ProposedBurst       int64   `json:"proposed_burst"`
	ProposedPassed      float64 `json:"proposed_passed"`
	ProposedPassedWhole int     `json:"proposed_passed_whole"`
	// LeftOut are subjects that do not pass entirely with the proposed numbers, by what
	// they need: the first of Subjects less ProposedPassedWhole. It is for BySubject.
	LeftOut []Need `json:"left_out,omitempty"`
	// Busiest is set if the share of so few subjects is all of them: the one that needs
	// most, and so drives the numbers. WithoutRequests and WithoutBurst are what all
	// others need, or 0 if there are no others.
	Busiest         *Need `json:"busiest,omitempty"`
	WithoutRequests int64 `json:"without_requests,omitempty"`
	WithoutBurst    int64 `json:"without_burst,omitempty"`
	// Problem says why there are none.
	Problem string `json:"problem,omitempty"`

	rule  *rules.Rule
	limit *bucket.Limit
}

// Need is what a subject alone would need to pass entirely.
type Need struct {
	// Subject is its entries in command line form: KEY=VALUE[,KEY=VALUE].
	Subject string `json:"subject"`
	// Asked counts its requests with a cost.
	Asked uint64 `json:"asked"`
	// Requests and Burst are 0 if no valid numbers let it pass.
	Requests int64 `json:"requests"`
	Burst    int64 `json:"burst"`

	index int // of the subject
}

// Bounds of what is kept for fitting.
const (
	// maxAsked bounds the requests, 28 bytes each.
	maxAsked = 64 << 20
	// maxNames bounds the texts of subjects in bytes.
	maxNames = 1 << 30
	// maxNamed bounds the subjects whose needs a fit names.
	maxNamed = 5
)

// fitting collects what was asked of each limit.
type fitting struct {
	share  float64
	by     FitBy
	limits map[fitName]*fitted
	asked  int
	// names is the number of bytes in the texts of all subjects.
	names int
	text  []byte
}

type fitName struct {
	rule  *rules.Rule
	index int
}

// fitted is what was asked of a limit.
type fitted struct {
	fitName
	row      *row
	limit    *bucket.Limit
	subjects map[string]uint32 // by key
	names    []string          // of subjects, as written by spelling.AppendEntries
	asked    []asked
	// starts is set once asked is sorted by subject: those of one subject are from
	// starts[subject] up to starts[subject+1], in time order.
	starts []uint32
	// state is the memory in which a subject is decided.
	state bucket.State
	// skipped is a subject to skip, or noSubject.
	skipped int
}

const noSubject = -1

func percentOf(share float64) string { return fmt.Sprintf("%.6g%%", 100*share) }

// asked is a request to a limit.
type asked struct {
	at, cost int64
	subject  uint32
	reports  bool
}

func newFitting(share float64, by FitBy) *fitting {
	return &fitting{share: share, by: by, limits: make(map[fitName]*fitted)}
}

// add keeps what a decided call asked at a given time.
func (f *fitting) add(at int64, c *decide.Call, verdicts []verdict) error {
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		for j, l := range o.Limits {
			h := &o.Hits[j]
			if !o.IsRuled() || o.Refusal != decide.NotRefused || h.Cost == 0 || h.Holder != "" {
				continue
			}
			index := slices.Index(o.Rule.Limits, l)
			if index < 0 {
				continue // assigned numbers
			}
			if f.asked++; f.asked > maxAsked {
				return fmt.Errorf("found more than %s requests to fit; allowed: as many, so a part of the log", Grouped(maxAsked))
			}
			to := f.of(fitName{o.Rule, index}, verdicts[i].row)
			subject, isKnown := to.subjects[string(h.Key)]
			if !isKnown {
				subject = uint32(len(to.names))
				name := f.nameOf(o.Rule, c.Descriptors[i].Entries)
				if f.names += len(name); f.names > maxNames {
					return fmt.Errorf("found more than %s bytes of subjects to fit; allowed: as many, so a part of the log", Grouped(maxNames))
				}
				to.subjects[string(h.Key)], to.names = subject, append(to.names, name)
			}
			to.asked = append(to.asked, asked{at: at, cost: h.Cost, subject: subject, reports: c.Descriptors[i].Reports})
		}
	}
	return nil
}

// nameOf names a subject of a rule. Subjects that share its threshold are one.
func (f *fitting) nameOf(rule *rules.Rule, entries []bucket.Entry) string {
	if rule.ShareThreshold {
		entries = slices.Clone(entries)
		entries[len(entries)-1].Value = rule.Pattern
	}
	f.text = spelling.AppendEntries(f.text[:0], entries)
	return string(f.text)
}

func (f *fitting) of(name fitName, r *row) *fitted {
	found := f.limits[name]
	if found == nil {
		found = &fitted{
			fitName: name, row: r, limit: name.rule.Limits[name.index], subjects: make(map[string]uint32), skipped: noSubject,
		}
		f.limits[name] = found
	}
	return found
}

// fits returns the proposals, by domain, rule and limit.
func (f *fitting) fits() []Fit {
	fits := make([]Fit, 0, len(f.limits))
	all := make([]*fitted, 0, len(f.limits))
	for _, limit := range f.limits {
		all = append(all, limit)
	}
	slices.SortFunc(all, func(a, b *fitted) int {
		return cmp.Or(cmp.Compare(a.row.domain, b.row.domain), cmp.Compare(a.row.rule, b.row.rule), cmp.Compare(a.index, b.index))
	})
	for _, limit := range all {
		limit.sort()
		fits = append(fits, limit.fit(f.by, limit.shareOf(f.share)))
		limit.starts = nil
	}
	return fits
}

// sort sorts what was asked by subject, by counting, so that it is read sequentially for
// each candidate.
func (f *fitted) sort() {
	f.starts = make([]uint32, len(f.names)+1)
	for i := range f.asked {
		f.starts[f.asked[i].subject+1]++
	}
	for s := range f.names {
		f.starts[s+1] += f.starts[s]
	}
	next, to := slices.Clone(f.starts), make([]uint32, len(f.asked))
	for i := range f.asked {
		s := f.asked[i].subject
		to[i] = next[s]
		next[s]++
	}
	for i := range f.asked { // each swap puts one in its place
		for j := to[i]; j != uint32(i); j = to[i] {
			f.asked[i], f.asked[j] = f.asked[j], f.asked[i]
			to[i], to[j] = to[j], j
		}
	}
}

// of returns what a subject asked.
func (f *fitted) of(subject int) []asked { return f.asked[f.starts[subject]:f.starts[subject+1]] }

// shareOf returns the share that has to pass the limit for a share to pass its rule. What
// may be denied is divided among the limits of the rule that deny, since they may deny
// different requests.
func (f *fitted) shareOf(share float64) float64 {
	deny := 0
	for _, l := range f.rule.Limits {
		if l.Unenforced < bucket.AllSubjects {
			deny++
		}
	}
	if deny == 1 || f.limit.Unenforced == bucket.AllSubjects { // which stands for itself
		return share
	}
	return 1 - (1-share)/float64(deny)
}

// least returns the smallest number that is at least a share of all.
func least(share float64, all uint64) uint64 {
	const rounding = 1e-6 // of a share of 2^26 as a float64
	return uint64(math.Ceil(share*float64(all) - rounding))
}

// fit proposes numbers for a limit.
func (f *fitted) fit(by FitBy, share float64) Fit {
	found := Fit{
		Domain: f.row.domain, Rule: f.row.rule, Limit: tally.LimitName(f.limit), By: by, Subjects: len(f.names), Share: share,
		Requests: f.limit.Requests, Burst: f.limit.Burst, rule: f.rule, limit: f.limit,
	}
	now := f.decide(f.limit)
	if found.Asked = now.asked; now.asked == 0 {
		found.Problem = "nothing but refunds was asked of it"
		return found
	}
	found.Passed, found.PassedWhole = now.share(), now.whole
	s, leftOut := search{limit: f.limit}, len(f.names)-int(least(share, uint64(len(f.names))))
	if by == ByRequest {
		passing := least(share, now.asked)
		s.suffices = func(l *bucket.Limit) bool { return f.decide(l).passed >= passing }
	} else {
		s.suffices = f.failsAtMost(leftOut)
	}
	requests, burst, ok := s.smallest()
	if !ok {
		found.Problem = fmt.Sprintf("no %s that a file may have lets %s of %ss pass", f.limit.Algorithm, percentOf(share), by)
		return found
	}
	proposed := f.with(requests, burst)
	then := f.decide(proposed)
	found.ProposedRequests, found.ProposedBurst = requests, burst
	found.ProposedPassed, found.ProposedPassedWhole = then.share(), then.whole
	switch {
	case by == ByRequest:
	case leftOut == 0:
		f.nameBusiest(&found)
	case then.whole < found.Subjects:
		found.LeftOut = f.needs(maxNamed, func(subject int) bool { return !f.passesWhole(subject, proposed) })
	}
	return found
}

// nameBusiest names the subject that drives the numbers, and says what all others need.
func (f *fitted) nameBusiest(found *Fit) {
	busiest := f.needs(1, func(int) bool { return true })[0]
	found.Busiest = &busiest
	if found.Subjects == 1 {
		return
	}
	f.skipped = busiest.index
	s := search{limit: f.limit, suffices: f.failsAtMost(0)}
	found.WithoutRequests, found.WithoutBurst, _ = s.smallest()
	f.skipped = noSubject
}
