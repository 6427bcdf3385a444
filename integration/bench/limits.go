package main

import (
	"fmt"
	"strings"
)

const domain = "bench"

// maxDescriptors is the most descriptors that a row's request has.
const maxDescriptors = 3

// A limit is kept in the unit year or, over, hour, both known to
// envoyproxy/ratelimit too. The states of a full year's limits do not run out
// between two requests, as they would if they were refilled at once.
var limits = []struct {
	key, unit string
	requests  int64
}{
	{"user", "year", 10_000_000},
	{"account", "year", 100_000},
	{"hot", "year", 1_000_000_000},
	{"over", "hour", overLimit},
}

// overLimit is how many requests an hour the row "over its limit" has.
const overLimit = 100

// limitsFile returns the limits file of all rows. Without an algorithm it is
// one that envoyproxy/ratelimit loads as well.
func limitsFile(algorithm string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain: %s\n", domain)
	if algorithm != "" {
		fmt.Fprintf(&b, "algorithm: %s\n", algorithm)
	}
	b.WriteString("descriptors:\n")
	for _, l := range limits {
		for i := range maxDescriptors {
			fmt.Fprintf(&b, "  - key: %s\n    rate_limit: {unit: %s, requests_per_unit: %d}\n", descriptorKey(l.key, i), l.unit, l.requests)
		}
	}
	return b.String()
}

// descriptorKey is the key of a request's i-th descriptor: each descriptor of
// a request has a limit of its own.
func descriptorKey(key string, i int) string {
	if i == 0 {
		return key
	}
	return fmt.Sprintf("%s-%d", key, i+1)
}
