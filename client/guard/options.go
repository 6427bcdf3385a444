// Package guard is what the middlewares of ratelimitd have in common: what they
// ask about a request, what they tell of the answer, and when they give back.
// Users of a middleware meet it in the types of its options; it stands by
// itself for middlewares of other frameworks.
//
// R is a framework's request, S the status of its responses, H the type of its
// handlers for what is not allowed.
package guard

import (
	"errors"
	"fmt"

	"github.com/ratelimitd/ratelimitd/client"
)

// Options of a middleware.
type Options[R, S, H any] struct {
	// Domain is the namespace of the limits; not empty.
	Domain string
	// Descriptors are what is asked about, at least one; all must pass.
	Descriptors []Descriptor[R]
	// Cost is how much a request takes; 1 if it is nil. 0 takes nothing and
	// asks whether there is room for 1.
	Cost func(R) uint64
	// Skip lets a request pass unasked.
	Skip func(R) bool
	// OnMissing says what becomes of a request that lacks a value.
	OnMissing OnMissing
	// CountIf, if set, says of the handler's status whether the request
	// counts. It is taken before the handler runs, so that asking in parallel
	// finds no way past, and given back afterwards if it does not count.
	CountIf func(S) bool
	// Headers says which headers tell callers of their limits.
	Headers Headers
	// Status and Body are the response to what is denied. The default is the
	// framework's: 429, or RESOURCE_EXHAUSTED.
	Status S
	Body   string
	// OnDenied responds in their place; headers are set already.
	OnDenied H
	// OnError responds where there is no decision; the default is 503, or
	// UNAVAILABLE. What that takes is a client or an OnFailure of FailError.
	OnError H
	// OnFailure takes the place of the client's choice, if it is made.
	OnFailure client.Failure
}

// Descriptor is a list of entries that requests have values for.
type Descriptor[R any] struct {
	Parts []Part[R]
	// LimitFor, if it is set and returns some, gives the numbers that take the
	// place of the rule's, such as those of a customer's plan.
	LimitFor func(R) *client.Numbers
}

// Part is an entry's key, and where its value is from.
type Part[R any] struct {
	Key string
	// Value reports false if the request has none.
	Value func(R) (string, bool)
}

// By returns the descriptor of these parts.
func By[R any](parts ...Part[R]) Descriptor[R] { return Descriptor[R]{Parts: parts} }

// Constant is an entry that is the same for all requests.
func Constant[R any](key, value string) Part[R] {
	return Part[R]{Key: key, Value: func(R) (string, bool) { return value, true }}
}

// OnMissing says what becomes of a request that lacks a value.
type OnMissing uint8

const (
	// Empty takes the empty value: all who lack it share one counter.
	Empty OnMissing = iota
	// Omit does not ask about the descriptor that lacks it. Nothing is asked
	// about a request without any.
	Omit
	// Deny denies the request.
	Deny
)

// Headers says which headers tell callers of their limits.
type Headers uint8

const (
	// XRateLimit is X-RateLimit-Limit, X-RateLimit-Remaining and
	// X-RateLimit-Reset, of the limit that denied or has the fewest remaining;
	// and Retry-After on denial.
	XRateLimit Headers = iota
	// IETF is RateLimit-Policy and RateLimit, of all limits, as in
	// draft-ietf-httpapi-ratelimit-headers-11; and Retry-After on denial.
	IETF
	// None is no header at all.
	None
)

func (o *Options[R, S, H]) check() error {
	switch {
	case o.Domain == "":
		return errors.New("domain is empty")
	case len(o.Descriptors) == 0:
		return errors.New("descriptors is empty; there is at least one")
	case o.OnMissing > Deny:
		return fmt.Errorf("on missing: found %d; allowed: Empty, Omit, Deny", o.OnMissing)
	case o.Headers > None:
		return fmt.Errorf("headers: found %d; allowed: XRateLimit, IETF, None", o.Headers)
	}
	for i, d := range o.Descriptors {
		if len(d.Parts) == 0 {
			return fmt.Errorf("descriptors[%d].parts is empty; a descriptor has at least one", i)
		}
		for j, p := range d.Parts {
			if p.Key == "" || p.Value == nil {
				return fmt.Errorf("descriptors[%d].parts[%d]: a key and a value are needed", i, j)
			}
		}
	}
	return o.OnFailure.Err()
}
