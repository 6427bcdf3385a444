// Package glob finds the first of an ordered set of patterns that matches a value, and
// bounds the cost of hostile values. It imports nothing of the daemon.
package glob
