// Package bucket says what a limit does: its numbers, the arithmetic of each
// algorithm, the key of its state, and what a store of states must promise. It
// imports nothing of the project.
//
// A Limit is an algorithm with its numbers. Its State is what it remembers
// about one key. Decide returns what a hit of some cost would get, Charge writes
// the hit into the state, GiveBack takes it out again, and Mend comes before each
// of them where clocks may step. All four are arithmetic on their arguments alone:
// no clock is read and nothing is sent. A Store keeps the states and runs these
// steps atomically for all hits of a group.
//
// # Time
//
// A moment is an int64 of microseconds since the Unix epoch on the store's
// clock. Windows and logs count in microseconds; a bucket counts in its own
// Quantum, the finest of 1 us, 1 ms, 1 s and 1 min in which its numbers fit. For
// one key time never runs backwards: a clock behind the state's last write counts
// as the moment of that write. A clock further behind than right clocks can be
// means that a wrong clock wrote the state, and Mend puts it in order.
//
// # Exactness
//
// All arithmetic is on integers that stay under 2^53, so that a script whose
// numbers are IEEE doubles computes the very same decisions. Rounding only
// ever favours the limit: what remains is rounded down, waits are rounded up.
package bucket
