package top

// Kind is what is added up for a rule's subjects.
type Kind uint8

// The kinds.
const (
	// Denied adds up descriptors that were denied.
	Denied Kind = iota
	// Used adds up the cost that was charged.
	Used

	// Kinds is the number of kinds.
	Kinds = iota
)

var kindNames = [Kinds]string{"denied", "used"}

// String returns "denied" or "used".
func (k Kind) String() string { return kindNames[k] }
