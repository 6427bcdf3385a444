// Package racetest lets tests of plain arithmetic do less under the race detector,
// which makes them eight times as slow and has nothing to find there. make test runs
// them without it too.
package racetest

// Fewer returns n, or a tenth of it under the race detector.
func Fewer(n int) int {
	if on {
		return (n + 9) / 10
	}
	return n
}

// Some returns all, or the first n of them under the race detector: of cases that differ
// only in arithmetic.
func Some[T any](n int, all []T) []T {
	if on {
		return all[:min(n, len(all))]
	}
	return all
}
