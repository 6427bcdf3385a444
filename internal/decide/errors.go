package decide

import "fmt"

// Error says why a call was not decided, where that is not the store's failure. The text
// is for the caller: it says where, what was found and what is allowed.
type Error struct {
	Kind Kind
	Text string
}

// Kind is what an Error means for who called.
type Kind uint8

// Kinds.
const (
	// Invalid: the call cannot be meant so.
	Invalid Kind = iota + 1
	// Forbidden: a setting does not allow it.
	Forbidden
	// Changed: the limits are others than those that the call speaks of.
	Changed
	// NotReady: limits or assignments are not loaded yet.
	NotReady
)

// Error implements error.
func (e *Error) Error() string { return e.Text }

func errorOf(kind Kind, format string, args ...any) error {
	return &Error{kind, fmt.Sprintf(format, args...)}
}
