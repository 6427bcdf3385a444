package cmdline

import "fmt"

// Exit codes besides 0.
const (
	ExitError     = 1
	ExitDifferent = 2 // check --diff or replay has found differences
	ExitUnreached = 2 // status has not reached the daemon
	ExitDenied    = 3
	ExitPending   = 4 // not every daemon has answered
)

// ExitCode ends the program with this code. All messages have already been printed.
type ExitCode int

// Error implements error.
func (e ExitCode) Error() string { return fmt.Sprintf("exit %d", int(e)) }
