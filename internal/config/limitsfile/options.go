package limitsfile

import (
	"io"

	"github.com/ratelimitd/ratelimitd/internal/config/rules"
)

// Options says how limits files are read. The zero value is strict.
type Options struct {
	// MergeDomains lets several files define parts of one domain. Without it that is an
	// error.
	MergeDomains bool
	// Lenient warns of what envoyproxy/ratelimit accepts instead of refusing it. What
	// that service refuses too stays an error, except for two descriptors of the same key
	// and value of which only one has the limit: Envoy Gateway sends such pairs, and they
	// are merged.
	Lenient bool
	// Input, if set, is what the path "-" refers to; it is read once.
	Input io.Reader
	// Sparing, if set, calls the function with which a Live replaces its rules. That
	// function leaves much garbage behind, including the previous rules.
	Sparing func(load func())
	// Announce, if set, is called with rules that a Live is about to put in force, and of the
	// text of their files in load order. No decision by these rules is made before it
	// returns. For rules that came in messages the texts are equivalent limits files.
	Announce func(r *rules.Set, files []Text)
	// Clock returns the moment at which a Live puts rules in force, in microseconds since
	// the Unix epoch. If nil, it is the wall clock as of NewLive plus the monotonic time
	// since, as in memory stores.
	Clock func() int64
}

// Text is the text of a limits file. Its name is relative to the path of the limits.
type Text struct{ Name, Text string }
