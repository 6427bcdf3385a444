package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ratelimitd/ratelimitd/client"
)

// Guard decides about requests. Its methods may be called concurrently.
type Guard[R, S, H any] struct {
	client  *client.Client
	options Options[R, S, H]
}

// New returns a Guard that asks through c. Its error says which option is invalid.
func New[R, S, H any](c *client.Client, o Options[R, S, H]) (*Guard[R, S, H], error) {
	if c == nil {
		return nil, errors.New("client is nil")
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	return &Guard[R, S, H]{client: c, options: o}, nil
}

// Verdict is the decision about a request.
type Verdict struct {
	Allowed bool
	// Result is the answer; nil if nothing was asked or no answer came.
	Result *client.Result
	// Err is the reason why there is no decision.
	Err error
	// Slot is what the request holds of its descriptors with a HolderKey; nil if it has
	// none of these, or is not allowed. It ends with the handler.
	Slot *client.Slot

	asked []int // for each descriptor of the request, its index in the options
}

// Ask decides about a request, and takes its cost if it is allowed.
func (g *Guard[R, S, H]) Ask(ctx context.Context, r R) Verdict {
	o := &g.options
	if o.Skip != nil && o.Skip(r) {
		return Verdict{Allowed: true}
	}
	request := client.Request{
		Domain:      o.Domain,
		Descriptors: make([]client.Descriptor, 0, len(o.Descriptors)),
		OnFailure:   o.OnFailure,
	}
	asked := make([]int, 0, len(o.Descriptors))
	for i := range o.Descriptors {
		d, isComplete := o.Descriptors[i].of(r)
		if !isComplete && o.OnMissing == Deny {
			return Verdict{}
		}
		if isComplete || o.OnMissing == Empty {
			request.Descriptors = append(request.Descriptors, d)
			asked = append(asked, i)
		}
	}
	if len(request.Descriptors) == 0 {
		return Verdict{Allowed: true}
	}
	if o.Cost != nil {
		cost := o.Cost(r)
		for i := range request.Descriptors {
			d := &request.Descriptors[i]
			if d.Peek = cost == 0; d.HolderKey == "" || cost == 0 { // a slot is a slot
				d.Cost = cost
			}
		}
	}
	v := Verdict{asked: asked}
	if slices.ContainsFunc(request.Descriptors, func(d client.Descriptor) bool { return d.HolderKey != "" }) {
		v.Slot, v.Result, v.Err = g.client.TryAcquire(ctx, request)
	} else {
		v.Result, v.Err = g.client.Take(ctx, request)
	}
	if v.Err != nil {
		return Verdict{Err: v.Err}
	}
	v.Allowed = v.Result.Allowed
	return v
}

// Release frees the slot of a request whose handler has ended, if it has one. A middleware
// that calls Finish need not call it.
func (g *Guard[R, S, H]) Release(v Verdict) {
	if v.Slot != nil {
		v.Slot.Release()
	}
}

// Refusal returns the option that responds to a request that is not allowed: OnError if
// there is no decision, OnDenied otherwise. It reports false if the request is allowed.
func (g *Guard[R, S, H]) Refusal(v Verdict) (handler H, isRefused bool) {
	switch {
	case v.Err != nil:
		return g.options.OnError, true
	case !v.Allowed:
		return g.options.OnDenied, true
	}
	return handler, false
}

// Finish ends an allowed request after its handler: if the status does not
// count, the request is given back. A give-back that is lost counts against the
// caller, and in the client's Stats. Then it frees the request's slot.
func (g *Guard[R, S, H]) Finish(ctx context.Context, v Verdict, status S) {
	defer g.Release(v)
	if g.Counts() && v.Result != nil && !g.options.CountIf(status) {
		_ = g.client.GiveBack(context.WithoutCancel(ctx), v.Result)
	}
}

// Counts reports whether Finish needs the status. Otherwise Release does.
func (g *Guard[R, S, H]) Counts() bool { return g.options.CountIf != nil }

// of returns the descriptor of a request, and whether it has all values. Missing
// values are empty.
func (d *Descriptor[R]) of(r R) (described client.Descriptor, isComplete bool) {
	isComplete = true
	described.HolderKey = d.HolderKey
	described.Entries = make([]client.Entry, len(d.Parts))
	for i, p := range d.Parts {
		value, ok := p.Value(r)
		if !ok {
			value, isComplete = "", false
		}
		described.Entries[i] = client.E(p.Key, text(value))
	}
	if d.LimitFor != nil {
		described.Numbers = d.LimitFor(r)
	}
	return described, isComplete
}

// text returns a value as UTF-8. Headers may hold any bytes; invalid ones become %XX.
func text(value string) string {
	if utf8.ValidString(value) {
		return value
	}
	var b strings.Builder
	for i := 0; i < len(value); {
		r, n := utf8.DecodeRuneInString(value[i:])
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, "%%%02X", value[i])
		} else {
			b.WriteString(value[i : i+n])
		}
		i += n
	}
	return b.String()
}
