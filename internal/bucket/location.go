package bucket

// Location says where the state of a hit is kept, and what decides about the hit when the
// store does not answer.
type Location struct {
	// Key is the name of the state in the store.
	Key string
	// Tag is the hash tag in Key, and Node the server that has it, as far as is
	// known. Both are empty if the store is this process.
	Tag, Node string
	// OnFailure is what decides when the store does not: never FailureDefault,
	// except for a store that cannot fail.
	OnFailure FailureMode
	// Share is the limit by which this process then decides, alone, as one of
	// Daemons; nil unless OnFailure is FailLocal.
	Share   *Limit
	Daemons int
}
