package bucket

import (
	"github.com/cespare/xxhash/v2"
)

// AllSubjects is all subjects in the unit of Unenforced, and so the Unenforced of a limit
// that denies nobody.
const AllSubjects = 10_000

// Enforces reports whether the limit may deny a subject, as AppendSubject makes it.
// Limits with the same Unenforced enforce the same subjects, on every daemon and after
// every restart, and subjects stay enforced when Unenforced falls.
func (l *Limit) Enforces(subject []byte) bool {
	switch l.Unenforced {
	case 0:
		return true
	case AllSubjects:
		return false
	}
	return xxhash.Sum64(subject)%AllSubjects < uint64(AllSubjects-l.Unenforced)
}
