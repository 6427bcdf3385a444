// Package steer contains the commands that change something on all daemons: assign,
// unassign, block, unblock and reset. It imports dial and assigntext.
package steer
