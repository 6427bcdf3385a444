// Package soaktest lets tests run for longer under make soak.
package soaktest

import "os"

// Long returns long if RATELIMITD_SOAK is set, as make soak does, and short otherwise:
// how many random traces a test runs, or for how long an attack lasts.
func Long[T any](short, long T) T {
	if os.Getenv("RATELIMITD_SOAK") != "" {
		return long
	}
	return short
}
