// Package record turns what was asked and decided into lines of the log of decisions. It
// imports decide, tally, decisionlog and bucket.
package record

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
)

// Sink takes lines to where they are kept, and never waits. It does not keep line,
// which ends with a newline. at is its moment, and span that of a sampled request.
type Sink interface {
	Write(line []byte, at int64, span bucket.SpanRef)
}

// Options of a Recorder.
type Options struct {
	Sinks []Sink
	// Allowed and Denied are the shares of the requests that are recorded, 0 to 1, of
	// those that were allowed and of all others.
	Allowed, Denied float64
	// PerSubject is how many lines a second there are for one subject at most, and
	// BytesPerSecond how many bytes for all, both below 2^32; 0 is no bound.
	PerSubject, BytesPerSecond int
	// HashKey, if not empty, makes lines hold the HMAC with this key instead of each
	// value.
	HashKey []byte
	// Thinned counts the lines that these bounds leave out, and LeftOut, if not nil, also
	// those that are not in the shares.
	Thinned prometheus.Counter
	LeftOut *atomic.Int64
	// Now is the daemon's clock, in microseconds since the Unix epoch.
	Now func() int64
}

// Recorder records requests. Its methods may be called concurrently.
type Recorder struct {
	Options
	subjects *subjects
	rate     rate
	scratch  sync.Pool
}

// New returns a recorder.
func New(o Options) *Recorder {
	r := &Recorder{Options: o, subjects: newSubjects(o.PerSubject), rate: rate{max: uint64(o.BytesPerSecond)}}
	if r.LeftOut == nil {
		r.LeftOut = new(atomic.Int64)
	}
	r.scratch.New = func() any { return newScratch(o.HashKey) }
	return r
}

// Request is a request that was answered.
type Request struct {
	*decide.Call
	// API is which API was asked, as in metrics.
	API string
	// Code is that of the answer.
	Code codes.Code
	// TakenAt are, for a give-back, the moments of the takes: negative if a fallback
	// took, and 0 if nothing was taken.
	TakenAt     []int64
	IsGivenBack bool
	// TraceID and Span are those of a sampled request.
	TraceID string
	Span    bucket.SpanRef
}

// Record records a request, unless it is left out.
func (r *Recorder) Record(q *Request) {
	share := r.Denied
	if q.Code == codes.OK && !q.Denied {
		share = r.Allowed
	}
	if share < 1 && rand.Float64() >= share {
		r.LeftOut.Add(1)
		return
	}
	now := r.Now()
	if !r.subjects.admit(now, q) {
		r.thin()
		return
	}
	s := r.scratch.Get().(*scratch)
	defer s.release(&r.scratch)
	at := s.fill(q, now)
	s.text = append(s.line.AppendJSON(s.text[:0]), '\n')
	if !r.rate.admit(now, len(s.text)) {
		r.thin()
		return
	}
	for _, sink := range r.Sinks {
		sink.Write(s.text, at, q.Span)
	}
}

// thin counts a line that the bounds leave out.
func (r *Recorder) thin() {
	r.Thinned.Inc()
	r.LeftOut.Add(1)
}

// fill makes the line of a request, and returns its moment.
func (s *scratch) fill(q *Request, now int64) int64 {
	l := &s.line
	l.At, l.API, l.Domain, l.TraceID = now, q.API, q.Domain, q.TraceID
	if q.Rules != nil {
		l.Limits = q.Rules.Fingerprint()
	}
	failed := q.Code != codes.OK
	switch {
	case failed:
		l.Result, l.Code = decisionlog.Failed, q.Code.String()
	case q.Denied:
		l.Result = decisionlog.Denied
	}
	l.ID, l.Caller = q.ID, q.Owner
	switch {
	case q.IsGivenBack:
		l.Kind = decisionlog.GivenBack
	case q.IsSettlement:
		l.Kind = decisionlog.Settled
	case q.ID != "" && !failed: // it may be anything otherwise
		l.SettleWithin = q.SettleWithin
	}
	if failed && !q.IsGivenBack {
		q.TakenAt = nil
	}
	isDecided := !failed && len(q.Outcomes) == len(q.Call.Descriptors)
	switch {
	case !isDecided:
	case q.IsSettlement:
		s.momentOfSettlement(q)
	default:
		s.findMoment(q)
	}
	for i := range q.Call.Descriptors {
		if isDecided && q.Releases && len(q.Outcomes[i].Limits) == 0 {
			continue // a release passes over it
		}
		asked := &q.Call.Descriptors[i]
		d := s.descriptor()
		d.Entries, d.Cost, d.Reports, d.Doubtful = asked.Entries, asked.Cost(), asked.Reports, asked.IsDoubtful
		if failed {
			d.Result = decisionlog.Failed
		}
		if i >= len(q.Outcomes) {
			continue
		}
		o := &q.Outcomes[i]
		d.rule(o)
		switch {
		case !isDecided:
		case q.IsGivenBack:
			s.givenBack(d, o, q.TakenAt[min(o.First, len(q.TakenAt)):])
		case q.IsSettlement:
			d.Kept = !asked.HasHitsAddend
			s.settled(d, q, i)
		default:
			d.Result = ResultOf(q.Call, o)
			s.decided(d, q, o)
		}
	}
	s.settleTexts()
	return l.At
}

// rule says which rule a descriptor met.
func (d *descriptor) rule(o *decide.Outcome) {
	if o.Rule != nil {
		d.Rule, d.Plan = o.Rule.Path(), o.Rule.Plan
	}
	d.Unlimited = o.IsFreed()
	switch o.Refusal {
	case decide.Blocked:
		d.Refusal = tally.BlockedLimit
	case decide.Unmatched:
		d.Refusal = tally.UnmatchedLimit
	}
}

// findMoment gives the line the moment on the store's clock of the first decision that was
// charged, or else of the first that has one: with a refusal some are charged, and others looked at later.
// Denials from memory have none: their age gives the store's clock.
func (s *scratch) findMoment(q *Request) {
	var first *bucket.Decision
	remembered := int64(0)
	for i := range q.Outcomes {
		o := &q.Outcomes[i]
		for j := range o.Decisions {
			d := &o.Decisions[j]
			isCharged := bucket.Due(&o.Hits[j], d, !q.Denied)
			remembered = max(remembered, d.RememberedAt)
			if d.At == 0 || first != nil && !isCharged {
				continue
			}
			if first = d; isCharged {
				s.line.At, s.line.Seq = d.At-int64(d.Ahead), d.Seq
				return
			}
		}
	}
	if first != nil {
		s.line.At, s.line.Seq = first.At-int64(first.Ahead), first.Seq
	} else if remembered != 0 {
		s.line.At = remembered
	}
}

// decided says what each limit of an outcome said.
func (s *scratch) decided(d *descriptor, q *Request, o *decide.Outcome) {
	first := len(s.limits)
	for j, l := range o.Limits {
		got := &o.Decisions[j]
		s.limits = append(s.limits, decisionlog.Limit{
			Name: o.LimitName(j), Result: q.LimitResult(o, j).String(), At: got.At, Seq: got.Seq,
			Remaining: got.Remaining, RetryAfter: got.RetryAfter, ResetAfter: got.ResetAfter, Paused: got.Paused,
			Degraded: got.Degraded, Remembered: got.RememberedAt != 0, Renewed: got.Renewal != bucket.NotRenewed,
		})
		if h := &o.Hits[j]; h.Holder != "" && h.Cost < 0 {
			s.limits[len(s.limits)-1].Released = got.Released.String()
		}
		s.line.Degraded = s.line.Degraded || got.Degraded
		s.numbersOfLast(o, j, l)
	}
	d.limits = span{first, len(s.limits)}
}

// numbersOfLast notes the numbers of the last limit of the line, which is limit j of an
// outcome, if no file has them.
func (s *scratch) numbersOfLast(o *decide.Outcome, j int, l *bucket.Limit) {
	if o.Refusal != decide.NotRefused && j == 0 {
		return // it stands for the refusal, and has no numbers
	}
	if o.Source(l) != decide.FromFile {
		s.numbers(len(s.limits)-1, l, o.Own)
	}
}

// givenBack says which limits got something back, by which numbers: these say how much
// of a take still counts. taken begins with the moments of their takes.
func (s *scratch) givenBack(d *descriptor, o *decide.Outcome, taken []int64) {
	first := len(s.limits)
	for j, l := range o.Limits {
		limit := decisionlog.Limit{Name: o.LimitName(j), Result: tally.LimitAllowed.String()}
		if j < len(taken) && j < len(o.Decisions) {
			limit.At, limit.Seq = o.Decisions[j].At, o.Decisions[j].Seq
			limit.TakenAt, limit.Degraded = max(taken[j], -taken[j]), taken[j] < 0
		}
		s.line.Degraded = s.line.Degraded || limit.Degraded
		s.limits = append(s.limits, limit)
		s.numbersOfLast(o, j, l)
	}
	d.limits = span{first, len(s.limits)}
}

// momentOfSettlement gives the line the moment of the first limit that was settled.
func (s *scratch) momentOfSettlement(q *Request) {
	if len(q.Settled) > 0 {
		s.line.At, s.line.Seq = q.Settled[0].At, q.Settled[0].Seq
	}
}

// settled says what a settlement did to the limits of descriptor i.
func (s *scratch) settled(d *descriptor, q *Request, i int) {
	first := len(s.limits)
	o := &q.Outcomes[i]
	for j := range q.Settled {
		did := &q.Settled[j]
		if did.Descriptor != i {
			continue
		}
		result := "unknown"
		if did.IsKnown {
			result = "settled"
		}
		s.limits = append(s.limits, decisionlog.Limit{
			Name: o.LimitName(did.Limit), Result: result, At: did.At, Seq: did.Seq, Remaining: did.Remaining, ResetAfter: did.ResetAfter,
			Degraded: did.Degraded, Returned: did.Returned, Added: did.Added, Takes: did.Takes,
		})
		s.line.Degraded = s.line.Degraded || did.Degraded
		s.numbersOfLast(o, did.Limit, o.Limits[did.Limit])
	}
	d.limits = span{first, len(s.limits)}
}

// ResultOf returns the result of an outcome of a decided call, as a line says it.
func ResultOf(c *decide.Call, o *decide.Outcome) decisionlog.Result {
	switch c.ResultOf(o) {
	case tally.Denied:
		return decisionlog.Denied
	case tally.Shadowed:
		return decisionlog.Shadowed
	}
	return decisionlog.Allowed
}
