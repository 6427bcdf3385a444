// Package exit defines the exit codes of the program. It imports nothing of the project.
package exit

import "fmt"

// Exit codes besides 0.
const (
	Error     = 1
	Different = 2 // check --diff or replay has found differences
	Denied    = 3
	Pending   = 4 // not every daemon has answered
)

// Code ends the program with this code. All messages have already been printed.
type Code int

// Error implements error.
func (e Code) Error() string { return fmt.Sprintf("exit %d", int(e)) }
