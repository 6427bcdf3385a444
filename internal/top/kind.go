package top

import "slices"

// Kind is what is added up of a rule's subjects.
type Kind uint8

// The kinds.
const (
	// Denied adds up descriptors that were denied.
	Denied Kind = iota
	// Used adds up the cost that was charged.
	Used

	// Kinds is how many there are.
	Kinds = iota
)

var kindNames = [Kinds]string{"denied", "used"}

// String returns "denied" or "used".
func (k Kind) String() string { return kindNames[k] }

// ParseKind returns the kind of a name.
func ParseKind(name string) (Kind, bool) {
	i := slices.Index(kindNames[:], name)
	return Kind(max(0, i)), i >= 0
}
