// Package guard is the common part of ratelimitd's middlewares: it asks about a
// request, sets headers from the answer, and gives back requests that do not
// count.
//
// Users of a middleware meet it in the types of its options. A middleware for
// another framework can be built on it; package guardtest tests one.
//
// R is a framework's request, S the status of its responses, and H the type of
// its handlers that respond to refused requests.
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
	// Descriptors to ask about, at least one; all must pass.
	Descriptors []Descriptor[R]
	// Cost returns how much a request takes; the default is 1. A cost of 0
	// takes nothing and asks whether there is room for 1.
	Cost func(R) uint64
	// Skip reports whether a request passes without being asked about.
	Skip func(R) bool
	// OnMissing is how to treat a request that lacks a value; the default is
	// Empty.
	OnMissing OnMissing
	// CountIf, if set, reports whether a request with this status counts. The
	// request is taken before its handler runs, so that requests in parallel
	// cannot exceed the limit, and given back afterwards if it does not count.
	CountIf func(S) bool
	// Headers selects the headers that inform callers about their limits; the default is
	// XRateLimit.
	Headers Headers
	// Status and Body are the response to a denied request. The default is that
	// of the framework: 429, or RESOURCE_EXHAUSTED.
	Status S
	Body   string
	// OnDenied, if set, responds to denied requests instead. The headers are set already.
	OnDenied H
	// OnError responds if there is no decision: the daemon did not answer and
	// the choice is FailError, the request is invalid, or its context ended.
	// The default is 503, or UNAVAILABLE.
	OnError H
	// OnFailure, if set, replaces the client's choice.
	OnFailure client.Failure
}

// Descriptor is a list of entries whose values come from a request.
type Descriptor[R any] struct {
	Parts []Part[R]
	// HolderKey, if set, makes the descriptor one of requests in flight: it adds an entry
	// with this key and a value that no other request has. The request has its slot until
	// its handler has returned or panicked, however long that takes. If all slots are
	// taken it is denied at once.
	HolderKey string
	// LimitFor, if set, returns numbers that replace those of the rule: a
	// customer's plan, for example. If it returns nil, the rule's count.
	LimitFor func(R) *client.Numbers
}

// Part is an entry's key and the source of its value.
type Part[R any] struct {
	Key string
	// Value reports false if the request lacks the value.
	Value func(R) (string, bool)
}

// By returns the descriptor of these parts.
func By[R any](parts ...Part[R]) Descriptor[R] { return Descriptor[R]{Parts: parts} }

// InFlight returns the descriptor of these parts that counts requests in flight.
func InFlight[R any](holderKey string, parts ...Part[R]) Descriptor[R] {
	return Descriptor[R]{Parts: parts, HolderKey: holderKey}
}

// Constant is an entry that is the same for all requests.
func Constant[R any](key, value string) Part[R] {
	return Part[R]{Key: key, Value: func(R) (string, bool) { return value, true }}
}

// OnMissing is how to treat a request that lacks a value.
type OnMissing uint8

const (
	// Empty uses the empty value: all requests that lack the value share one
	// counter.
	Empty OnMissing = iota
	// Omit does not ask about the descriptor that lacks the value. A request
	// without any descriptor passes.
	Omit
	// Deny denies the request.
	Deny
)

// Headers selects the headers that inform callers about their limits.
type Headers uint8

const (
	// XRateLimit sets X-RateLimit-Limit, X-RateLimit-Remaining and
	// X-RateLimit-Reset from the limit that denied or has the fewest remaining,
	// and Retry-After on denial.
	XRateLimit Headers = iota
	// IETF sets RateLimit-Policy and RateLimit from all limits, as in
	// draft-ietf-httpapi-ratelimit-headers-11, and Retry-After on denial.
	IETF
	// None sets no header.
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
		if len(d.Parts) == 0 && d.HolderKey == "" {
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
