// Package cli is the command line: a command for each thing that one can do with a
// daemon, and the errors of wrong command lines. It imports the daemon, and what the
// commands are about.
package cli
