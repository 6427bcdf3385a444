package bucket

import (
	"fmt"
)

// FailureMode says what decides for a limit when its store does not.
type FailureMode uint8

const (
	// FailureDefault is the daemon's setting, failure.mode.
	FailureDefault FailureMode = iota
	// FailLocal decides in this process, by this daemon's share of the limit.
	FailLocal
	// FailAllow allows.
	FailAllow
	// FailDeny denies.
	FailDeny
	// FailError fails the request.
	FailError
)

var failureModeNames = [...]string{FailLocal: "local", FailAllow: "allow", FailDeny: "deny", FailError: "error"}

// FailureModes lists the modes that have a name.
func FailureModes() []FailureMode { return []FailureMode{FailLocal, FailAllow, FailDeny, FailError} }

// String returns the one spelling of the mode, as in a limits file.
func (m FailureMode) String() string {
	if m == FailureDefault || int(m) >= len(failureModeNames) {
		return fmt.Sprintf("FailureMode(%d)", uint8(m))
	}
	return failureModeNames[m]
}
