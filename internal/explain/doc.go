// Package explain finds out why a request gets what it gets: which rules its descriptors
// match or where they leave the tree of limits, which assignments apply, and what each limit
// has left. It returns facts; those who show them make sentences. It matches as decide does,
// and looks at the states without charging anything. It imports decide, rules, trace, and
// what these import.
package explain
