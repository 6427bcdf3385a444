package replay

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
)

// Options say what to replay.
type Options struct {
	// Limits decide all lines. If nil, each line is decided by the limits that were in
	// force according to the log, and compared with what was decided then.
	Limits *rules.Set
	// Against, if not nil, are what Limits are compared with, instead of what was
	// recorded.
	Against *rules.Set
	// Settings, if not nil, changes the daemon's settings: those in the log, or the
	// defaults if it has none.
	Settings func(*decisionlog.Settings)
	// MaxKeys bounds the live states and the counted subjects; 0 means DefaultMaxKeys.
	MaxKeys int
	// Warn, if not nil, is called with what is odd, and where; at most a few times for each
	// kind of oddity.
	Warn func(string)
	// Sources is what the report says it is about.
	Sources Sources
}

// DefaultMaxKeys is about 2 GB of states.
const DefaultMaxKeys = 10_000_000

// Replay decides lines. New makes it; its methods are for one goroutine.
type Replay struct {
	o Options
	// sides decide before and after; the first is nil if before is what was recorded.
	sides [2]*side
	// recorded holds the limits in the log.
	recorded map[string]*decider
	// inForce are the settings applied last, and unsaid the defaults, for lines whose log
	// has none.
	inForce  *decisionlog.Settings
	unsaid   decisionlog.Settings
	rows     *rows
	subjects subjects
	// seed is the random seed for hashes of subjects, so that a log cannot make them
	// collide.
	seed     maphash.Seed
	timeline timeline
	compared Comparison
	lacks    Lacks
	totals   Totals
	verdicts [2][]verdict
	text     []byte // of a subject
	// warnedOfHashes is set after the one warning of hashed values.
	warnedOfHashes bool
}

// Totals count lines, and requests before and after.
type Totals struct {
	Lines uint64 `json:"lines"`
	// Requests were decided, not counting those in Degraded and Failed.
	Requests uint64 `json:"requests"`
	// Degraded were recorded while the store did not answer.
	Degraded uint64 `json:"degraded"`
	// Failed were not decided when they were recorded, or are not now.
	Failed    uint64 `json:"failed"`
	GiveBacks uint64 `json:"give_backs"`
	// Settlements are of what takes with IDs had charged.
	Settlements uint64 `json:"settlements"`
	// The rest are requests: those that were denied before and after, those that are
	// newly denied (Lost), and those that are newly allowed (Won). Recorded is set if there
	// is a before.
	Recorded      bool   `json:"has_before"`
	DeniedBefore  uint64 `json:"denied_before"`
	DeniedAfter   uint64 `json:"denied_after"`
	RequestsLost  uint64 `json:"newly_denied_requests"`
	RequestsWon   uint64 `json:"newly_allowed_requests"`
	DegradedAfter uint64 `json:"degraded_denied_after"`
	// first and last are times in microseconds since the Unix epoch.
	first, last int64
}

// New returns a replay that has decided nothing yet.
func New(o Options) (*Replay, error) {
	if o.MaxKeys == 0 {
		o.MaxKeys = DefaultMaxKeys
	}
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	if o.Against != nil && o.Limits == nil {
		return nil, errors.New("found limits to compare with and none to compare; allowed: both, or neither")
	}
	r := &Replay{
		o: o, recorded: make(map[string]*decider), rows: newRows(), subjects: subjects{max: o.MaxKeys},
		seed: maphash.MakeSeed(),
	}
	for p, rules := range [...]*rules.Set{o.Against, o.Limits} {
		if rules != nil || phase(p) == after {
			r.sides[p] = newSide(o.MaxKeys)
		}
		if rules != nil {
			r.sides[p].fixed = r.sides[p].add(rules)
		}
	}
	return r, nil
}

// Run decides all lines of the logs in time order. Its error says where it is, what was
// found and what is allowed.
func (r *Replay) Run(logs ...*Log) error {
	m := merge{logs: logs, loaded: r.load, warn: r.o.Warn}
	var l Record
	for {
		switch err := m.next(&l); {
		case err == io.EOF:
			r.compared.Unread = m.unread()
			r.note(logs)
			return nil
		case err != nil:
			return err
		}
		if err := r.line(&l); err != nil {
			return fmt.Errorf("%s: %w", l.Where(), err)
		}
	}
}

// note notes what the logs say they lack.
func (r *Replay) note(logs []*Log) {
	for _, l := range logs {
		r.lacks.Decisions += l.lost
		if b := l.bounds; b != nil && r.lacks.Bounds == nil {
			r.lacks.Bounds = &LogBounds{b.PerSubject, b.BytesPerSecond, b.SampleAllowed, b.SampleDenied}
		}
	}
}

// load notes limits that came into force according to a log.
func (r *Replay) load(l *Record) error {
	if r.recorded[l.Limits] != nil {
		return nil
	}
	texts := make([]limitsfile.Text, len(l.Files))
	for i, f := range l.Files {
		texts[i] = limitsfile.Text{Name: strings.Clone(f.Name), Text: strings.Clone(f.Text)}
	}
	rules, err := limitsfile.Options{Lenient: true, MergeDomains: true}.LoadTexts(texts)
	switch {
	case err != nil:
		return fmt.Errorf("%s: limits in the log do not load:\n%w", l.Where(), err)
	case rules.Fingerprint() != l.Limits:
		return fmt.Errorf("%s: found limits of the fingerprint %s; allowed: %s, as the line says", l.Where(), rules.Fingerprint(), l.Limits)
	}
	s := r.sides[after]
	if s.fixed != nil { // these rules only say what was assigned then
		s = newSide(1)
	}
	d := s.add(rules)
	r.recorded[rules.Fingerprint()] = d
	if r.sides[after].fixed == nil {
		s.deciders[rules.Fingerprint()] = d
	}
	return nil
}

// apply applies the settings that were in force when a line was recorded.
func (r *Replay) apply(l *Record) {
	said := l.inForce
	if said == nil {
		said = &r.unsaid
	}
	if said == r.inForce {
		return
	}
	r.inForce = said
	now := *said
	if r.o.Settings != nil {
		r.o.Settings(&now)
	}
	for _, s := range r.sides {
		if s != nil {
			s.apply(&now)
		}
	}
}

var errUnknownLimits = errors.New("found no limits in force here; allowed: a log that begins with a line of the kind limits, or --limits FILE")

// line decides a line.
func (r *Replay) line(l *Record) error {
	r.totals.Lines++
	recorded := r.recorded[l.Limits]
	if l.Kind == decisionlog.GivenBack {
		r.apply(l)
		return r.giveBack(l, recorded)
	}
	if l.Result == decisionlog.Failed {
		r.totals.Failed++
		return nil
	}
	if l.Kind == decisionlog.Settled {
		r.apply(l)
		return r.settle(l, recorded)
	}
	if r.totals.first == 0 {
		r.totals.first = l.At
	}
	r.totals.last = max(r.totals.last, l.At)
	r.apply(l)
	s := r.sides[after]
	d := s.of(&l.Line)
	if d == nil {
		return errUnknownLimits
	}
	verifies := r.o.Limits == nil
	// The store at the time saw nothing of these.
	s.states.onlyLooks = verifies && (l.Degraded || isRemembered(&l.Line))
	if len(l.Descriptors) == 0 { // all were left out
		r.totals.Requests++
		return nil
	}
	if !r.warnedOfHashes && l.Recorded && isHashed(l.Descriptors) {
		r.warnedOfHashes = true
		r.o.Warn(l.Where() + ": found values that were hashed (decisions.values: hash); allowed: limits without values, since no hash matches one")
	}
	c, err := s.decide(d, &l.Line, recorded)
	if err != nil {
		return r.refused(l, err)
	}
	if l.Degraded {
		return r.degraded(l, c, recorded)
	}
	r.totals.Requests++
	r.verdicts[after] = r.rows.decided(after, c, &l.Line, r.verdicts[after][:0])
	denied := c.Denied
	if verifies {
		r.compared.compare(l, c)
	}
	return r.compareWithBefore(l, denied, recorded)
}

// isHashed reports whether the first value of a line has the form of decisions.values:
// hash.
func isHashed(descriptors []decisionlog.Descriptor) bool {
	if len(descriptors[0].Entries) == 0 {
		return false
	}
	digits, ok := strings.CutPrefix(descriptors[0].Entries[0].Value, "h:")
	return ok && len(digits) == 16 && strings.Trim(digits, "0123456789abcdef") == ""
}

// refused counts a line that the limits cannot answer, such as numbers of its own that
// other limits do not accept. It returns an error that ends the replay.
func (r *Replay) refused(l *Record, err error) error {
	var full *FullError
	if errors.As(err, &full) {
		return err
	}
	if r.totals.Failed++; r.totals.Failed <= maxWarnings {
		r.o.Warn(fmt.Sprintf("%s: %v; the line is passed over", l.Where(), err))
	}
	return nil
}

// degraded counts a line that was recorded while the store did not answer.
func (r *Replay) degraded(l *Record, c *decide.Call, recorded *decider) error {
	r.totals.Degraded++
	if c.Denied {
		r.totals.DegradedAfter++
	}
	if s := r.sides[before]; s != nil {
		_, err := s.decide(s.fixed, &l.Line, recorded)
		return err
	}
	return nil
}

// compareWithBefore counts what was before, and what has changed.
func (r *Replay) compareWithBefore(l *Record, denied bool, recorded *decider) error {
	deniedBefore, hasBefore := false, true
	switch s := r.sides[before]; {
	case s != nil:
		c, err := s.decide(s.fixed, &l.Line, recorded)
		if err != nil {
			return err
		}
		r.verdicts[before] = r.rows.decided(before, c, &l.Line, r.verdicts[before][:0])
		deniedBefore = c.Denied
	case l.Recorded:
		r.verdicts[before] = r.rows.addRecorded(&l.Line, r.verdicts[before][:0])
		deniedBefore = l.Result == decisionlog.Denied
	default:
		hasBefore = false
	}
	r.totals.Recorded = r.totals.Recorded || hasBefore
	r.totals.count(deniedBefore, denied, hasBefore)
	bin := r.timeline.at(l.At)
	r.timeline.all.add(after, bin, denied)
	if hasBefore {
		r.timeline.all.add(before, bin, deniedBefore)
	}
	for i := range l.Descriptors {
		r.descriptor(&l.Line, i, hasBefore)
	}
	return nil
}

func (t *Totals) count(deniedBefore, denied, hasBefore bool) {
	if denied {
		t.DeniedAfter++
	}
	if !hasBefore {
		return
	}
	if deniedBefore {
		t.DeniedBefore++
	}
	switch {
	case denied && !deniedBefore:
		t.RequestsLost++
	case deniedBefore && !denied:
		t.RequestsWon++
	}
}

// descriptor counts the result of a descriptor.
func (r *Replay) descriptor(l *decisionlog.Line, i int, hasBefore bool) {
	now := r.verdicts[after][i]
	denied := now.result == decisionlog.Denied
	deniedBefore := denied // without a before, nothing is new
	entries := l.Descriptors[i].Entries
	if now.subject != nil {
		entries = now.subject
	}
	r.text = spelling.AppendEntries(r.text[:0], entries)
	hash := maphash.Bytes(r.seed, r.text) ^ maphash.String(r.seed, l.Domain)
	got := fateOf(after, now.result)
	followed := now.row
	if hasBefore {
		then := r.verdicts[before][i]
		deniedBefore = then.result == decisionlog.Denied
		both := bothFates(deniedBefore, denied)
		got |= both
		r.subjects.add(then.row, hash, fateOf(before, then.result)|both)
		switch {
		case denied && !deniedBefore:
			now.row.newlyDenied++
		case deniedBefore && !denied:
			then.row.newlyAllowed++
			if now.row.rule == withoutRule {
				followed = then.row
			}
		}
	}
	r.subjects.add(now.row, hash, got)
	r.subjects.follow(followed, hash, r.text, l.At, denied, deniedBefore)
}

// giveBack gives back what a line says was given back.
func (r *Replay) giveBack(l *Record, recorded *decider) error {
	r.totals.GiveBacks++
	for _, s := range r.sides {
		if s == nil {
			continue
		}
		d := s.of(&l.Line)
		if d == nil {
			return errUnknownLimits
		}
		if err := s.giveBack(d, &l.Line, recorded); err != nil {
			return err
		}
	}
	return nil
}
