package replay

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
)

// subjects counts the subjects of all rules, and follows those that were denied, by the
// hashes of their entries.
type subjects struct {
	// counted is how many are counted, at most max, and text the bytes of the texts of
	// those that are followed, at most maxText for each that may be counted.
	max, counted, text int
	// uncounted counts what was asked for subjects beyond these bounds.
	uncounted uint64
}

// maxText is the maximum average length of the texts of all subjects, in bytes.
const maxText = 200

// subject is what a subject of a rule got. It takes up to 60 bytes unless it is followed.
type subject struct {
	fate fate
	// denials is nil for a subject that is not followed: it never was denied, or there was
	// no room.
	denials *denials
}

// denials are the denials of a subject, of which the first has made it a followed one.
type denials struct {
	row *row
	// text is the entries as written by spelling.AppendEntries.
	text string
	// denied counts denials after; the others compare with before.
	denied, newlyDenied, newlyAllowed uint64
	// first, since and last are times of denials: the very first, and the first and the
	// last without an admission between them. since is 0 after an admission.
	first, since, last int64
	// longest is the longest span from since to last, from longestSince on.
	longest, longestSince int64
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

// bothFates returns what the results before and after mean for the rules of both.
func bothFates(before, after bool) (both fate) {
	if before {
		both |= wasDenied
	}
	if after {
		both |= isDenied
	}
	return both
}

// add adds what a subject of a rule got.
func (s *subjects) add(r *row, hash uint64, got fate) {
	was, isCounted := r.subjects[hash]
	switch {
	case isCounted && was.fate|got == was.fate:
		return
	case !isCounted && s.counted >= s.max:
		s.uncounted++
		return
	case !isCounted:
		s.counted++
	}
	was.fate |= got
	r.subjects[hash] = was
}

// follow notes a request of a counted subject of a rule, from its first denial on.
func (s *subjects) follow(r *row, hash uint64, text []byte, at int64, denied, deniedBefore bool) {
	found, isCounted := r.subjects[hash]
	if !isCounted {
		return
	}
	if found.denials == nil {
		if !denied && !deniedBefore {
			return
		}
		if s.text+len(text) > maxText*s.max {
			s.uncounted++
			return
		}
		s.text += len(text)
		found.denials = &denials{row: r, text: string(text)}
		r.subjects[hash] = found
	}
	found.denials.see(at, denied, deniedBefore)
}

func (d *denials) see(at int64, denied, deniedBefore bool) {
	if !denied {
		if deniedBefore {
			d.newlyAllowed++
		}
		d.since = 0
		return
	}
	if !deniedBefore {
		d.newlyDenied++
	}
	d.denied++
	if d.first == 0 {
		d.first = at
	}
	if d.since == 0 {
		d.since = at
	}
	d.last = at
	if d.longestSince == 0 || d.last-d.since > d.longest {
		d.longest, d.longestSince = d.last-d.since, d.since
	}
}

// SubjectCounts compares the subjects of a rule, or of all rules; in the latter case a
// subject that asked under several rules counts for each.
type SubjectCounts struct {
	Before Counts `json:"before"`
	After  Counts `json:"after"`
	// NewlyDenied were never denied before and are now, NewlyAllowed the reverse.
	NewlyDenied  uint64 `json:"newly_denied"`
	NewlyAllowed uint64 `json:"newly_allowed"`
}

// add counts a subject with a fate.
func (n *SubjectCounts) add(got fate) {
	for _, c := range []struct {
		fate fate
		to   *uint64
	}{
		{askedBefore, &n.Before.Asked}, {deniedBefore, &n.Before.Denied}, {shadowedBefore, &n.Before.Shadowed},
		{askedAfter, &n.After.Asked}, {deniedAfter, &n.After.Denied}, {shadowedAfter, &n.After.Shadowed},
	} {
		if got&c.fate != 0 {
			*c.to++
		}
	}
	switch both := got & (wasDenied | isDenied); {
	case both == isDenied && got&deniedAfter != 0:
		n.NewlyDenied++
	case both == wasDenied && got&deniedBefore != 0:
		n.NewlyAllowed++
	}
}

// Subject is a subject that was denied, or is now allowed.
type Subject struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	// Subject is its entries in command line form: KEY=VALUE[,KEY=VALUE].
	Subject string `json:"subject"`
	// Denied counts its denials; NewlyDenied those that are new, and NewlyAllowed the
	// denials before that are gone.
	Denied       uint64 `json:"denied"`
	NewlyDenied  uint64 `json:"newly_denied"`
	NewlyAllowed uint64 `json:"newly_allowed"`
	// FirstDenied is zero for a subject that never was denied.
	FirstDenied time.Time `json:"first_denied,omitzero"`
	// LongestLockout is the longest span from a denial to a later one without an
	// admission between them, and LockedOutAt when it began.
	LongestLockout Lockout   `json:"longest_lockout"`
	LockedOutAt    time.Time `json:"locked_out_at,omitzero"`
}

// Lockout is a span in microseconds. In JSON it is seconds, such as "1.5s".
type Lockout int64

// MarshalJSON implements json.Marshaler.
func (l Lockout) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, `"%ss"`, strconv.FormatFloat(float64(l)/1e6, 'f', -1, 64)), nil
}

// String formats it for people.
func (l Lockout) String() string { return timespan.Format(time.Duration(l) * time.Microsecond) }

// top returns the subjects with the largest by, at most maxTop, without those for which it
// is 0.
func top(all []*denials, by func(*denials) uint64) []Subject {
	all = slices.DeleteFunc(slices.Clone(all), func(d *denials) bool { return by(d) == 0 })
	slices.SortFunc(all, func(a, b *denials) int {
		return cmp.Or(cmp.Compare(by(b), by(a)), cmp.Compare(a.row.domain, b.row.domain), cmp.Compare(a.text, b.text), cmp.Compare(a.row.rule, b.row.rule))
	})
	found := make([]Subject, 0, maxTop)
	for _, d := range all[:min(maxTop, len(all))] {
		s := Subject{
			Domain: d.row.domain, Rule: d.row.rule, Subject: d.text,
			Denied: d.denied, NewlyDenied: d.newlyDenied, NewlyAllowed: d.newlyAllowed,
			LongestLockout: Lockout(d.longest),
		}
		if d.first != 0 {
			s.FirstDenied, s.LockedOutAt = moment(d.first), moment(d.longestSince)
		}
		found = append(found, s)
	}
	return found
}

func moment(us int64) time.Time { return time.UnixMicro(us).UTC() }
