package replay

import (
	"cmp"
	"slices"
	"time"
)

// subjects follows those that were denied after or before, by rule. A subject is followed
// from its first denial on.
type subjects struct {
	max    int
	byHash map[subjectKey]*subject
	// text is the number of bytes of their texts, at most maxText for each that may be
	// followed.
	text int
	// lost counts the denials of subjects that there was no room to follow.
	lost uint64
}

// maxText is the maximum average length of the texts of all subjects, in bytes.
const maxText = 200

// subjectKey is the hash of a descriptor's entries, in a rule of a domain.
type subjectKey struct {
	row  *row
	hash uint64
}

// subject is a followed subject.
type subject struct {
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

func newSubjects(maxSubjects int) *subjects {
	return &subjects{max: maxSubjects, byHash: make(map[subjectKey]*subject)}
}

// see notes what a subject of a rule got, whose text has a hash. It may be skipped for
// rules that are not followed, unless the subject was denied or is newly allowed.
func (s *subjects) see(r *row, text []byte, hash uint64, at int64, denied, newlyDenied, newlyAllowed bool) {
	f := s.byHash[subjectKey{r, hash}]
	if f == nil {
		if !denied && !newlyAllowed {
			return
		}
		if len(s.byHash) >= s.max || s.text+len(text) > maxText*s.max {
			s.lost++
			return
		}
		s.text += len(text)
		f = &subject{row: r, text: string(text)}
		s.byHash[subjectKey{r, hash}] = f
		r.followed = true
	}
	f.see(at, denied, newlyDenied, newlyAllowed)
}

func (f *subject) see(at int64, denied, newlyDenied, newlyAllowed bool) {
	if newlyAllowed {
		f.newlyAllowed++
	}
	if newlyDenied {
		f.newlyDenied++
	}
	if !denied {
		f.since = 0
		return
	}
	f.denied++
	if f.first == 0 {
		f.first = at
	}
	if f.since == 0 {
		f.since = at
	}
	f.last = at
	if f.longestSince == 0 || f.last-f.since > f.longest {
		f.longest, f.longestSince = f.last-f.since, f.since
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
	// admission between them, in seconds, and LockedOutAt when it began.
	LongestLockout float64   `json:"longest_lockout_s"`
	LockedOutAt    time.Time `json:"locked_out_at,omitzero"`
}

// top returns the subjects with the largest by, at most n, without those for which it is
// 0.
func (s *subjects) top(n int, by func(*subject) uint64) []Subject {
	all := make([]*subject, 0, len(s.byHash))
	for _, f := range s.byHash {
		if by(f) > 0 {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b *subject) int {
		return cmp.Or(cmp.Compare(by(b), by(a)), cmp.Compare(a.row.domain, b.row.domain), cmp.Compare(a.text, b.text), cmp.Compare(a.row.rule, b.row.rule))
	})
	top := make([]Subject, 0, n)
	for _, f := range all[:min(n, len(all))] {
		found := Subject{
			Domain: f.row.domain, Rule: f.row.rule, Subject: f.text,
			Denied: f.denied, NewlyDenied: f.newlyDenied, NewlyAllowed: f.newlyAllowed,
			LongestLockout: float64(f.longest) / 1e6,
		}
		if f.first != 0 {
			found.FirstDenied, found.LockedOutAt = moment(f.first), moment(f.longestSince)
		}
		top = append(top, found)
	}
	return top
}

func moment(us int64) time.Time { return time.UnixMicro(us).UTC() }
