package decide

import (
	"fmt"
)

// Error says why a call was not decided, other than by a failure of the store. The text
// is for the caller: it says where, what was found and what is allowed.
type Error struct {
	Kind Kind
	Text string
}

// Error implements error.
func (e *Error) Error() string { return e.Text }

// Kind is what an Error means for the caller.
type Kind uint8

// Kinds.
const (
	// Invalid: the call itself is wrong.
	Invalid Kind = iota + 1
	// Forbidden: a setting does not allow it.
	Forbidden
	// Changed: the limits are no longer those that the call refers to.
	Changed
	// NotReady: limits or assignments are not loaded yet, or the store did not answer.
	NotReady
)

func errorOf(kind Kind, format string, args ...any) error {
	return &Error{Kind: kind, Text: fmt.Sprintf(format, args...)}
}
