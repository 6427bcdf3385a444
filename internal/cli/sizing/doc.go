// Package sizing is the command sizing: what daemons and Redis a load needs, by what the
// benchmarks measured. It imports the flags, and how numbers are written.
//
// bench.go has the measured numbers, plan.go the arithmetic, text.go shows it, and
// command.go has the flags. docs/sizing.md shows the numbers too; a test compares them.
package sizing
