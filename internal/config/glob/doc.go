// Package glob finds the first of an ordered set of patterns that matches a
// value, also among many thousands, and bounds what hostile values cost. It
// imports nothing of the daemon.
package glob
