package server

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// The messages of proto/ratelimit/v1/ratelimit.proto, by the numbers of their
// fields. They are read and written as those of Envoy's RPC are.

// unmarshalTake reads a TakeRequest into an empty call, which keeps parts of it.
func (c *call) unmarshalTake(request string) error {
	f := fields{rest: request}
	for f.next() {
		switch {
		case f.is(1, bytesKind):
			c.domain = f.text()
		case f.is(2, bytesKind):
			if c.isFull() {
				continue
			}
			if err := c.unmarshalAsked(f.bytes); err != nil {
				return err
			}
		}
	}
	c.settleEntries()
	return f.err
}

// unmarshalAsked reads a Descriptor.
func (c *call) unmarshalAsked(message string) error {
	start := len(c.entries)
	var d descriptor
	f := fields{rest: message}
	for f.next() {
		var err error
		switch {
		case f.is(1, bytesKind):
			if d.isFull(len(c.entries)-start, c.decider.bounds) {
				continue
			}
			err = c.unmarshalEntry(f.bytes, false)
		case f.is(2, varintKind):
			d.hasHits, d.hits = true, f.varint
		case f.is(3, bytesKind):
			err = d.own.unmarshalNumbers(f.bytes)
		}
		if err != nil {
			return err
		}
	}
	d.entries = c.entries[start:]
	c.descriptors = append(c.descriptors, d)
	return f.err
}

// unmarshalNumbers reads Numbers. A message that comes in several parts is the
// sum of them.
func (o *override) unmarshalNumbers(message string) error {
	o.set = true
	f := fields{rest: message}
	for f.next() {
		switch {
		case f.is(1, varintKind):
			o.requests = uint32(f.varint)
		case f.is(2, bytesKind):
			if err := o.unmarshalPeriod(f.bytes); err != nil {
				return err
			}
		case f.is(3, varintKind):
			o.burst = uint32(f.varint)
		}
	}
	return f.err
}

// unmarshalPeriod reads a Duration (google/protobuf/duration.proto).
func (o *override) unmarshalPeriod(message string) error {
	f := fields{rest: message}
	for f.next() {
		switch {
		case f.is(1, varintKind):
			o.seconds = int64(f.varint)
		case f.is(2, varintKind):
			o.nanos = int32(f.varint)
		}
	}
	return f.err
}

// appendTakeResponse appends the TakeResponse of a decided call.
func (c *call) appendTakeResponse(dst []byte) []byte {
	if !c.denied {
		dst = appendNumber(dst, 1, 1)
	}
	degraded, n := false, 0
	for i := range c.outcomes {
		o := &c.outcomes[i]
		for j, l := range o.limits {
			d := &o.decisions[j]
			dst = c.appendLimitStatus(dst, i, l, d, c.taken(n, d))
			degraded = degraded || d.Degraded
			n++
		}
	}
	if c.denied {
		denier, d := c.denier()
		dst = protowire.AppendVarint(protowire.AppendTag(dst, 3, varintKind), uint64(denier))
		dst = appendWait(dst, 4, d.RetryAfter)
	}
	if degraded {
		dst = appendNumber(dst, 5, 1)
	}
	return dst
}

// appendLimitStatus appends the Limit that tells what limit l decided about a
// hit of descriptor i, and what that took.
func (c *call) appendLimitStatus(dst []byte, i int, l *bucket.Limit, d *bucket.Decision, t taken) []byte {
	o := &c.outcomes[i]
	dst, start := beginMessage(dst, 2)
	dst = appendNumber(dst, 1, uint64(i))
	if l.Name != "" && o.own == nil {
		dst = appendText(dst, 2, l.Name)
	}
	dst = appendNumber(dst, 3, uint64(l.Algorithm))
	dst = appendNumber(dst, 4, uint64(l.Requests))
	dst = appendDuration(dst, 5, l.Period)
	dst = appendNumber(dst, 6, uint64(l.Capacity))
	dst = appendNumber(dst, 7, uint64(d.Remaining))
	if d.Allowed() {
		dst = appendNumber(dst, 8, 1)
	}
	dst = appendWait(dst, 9, d.RetryAfter)
	dst = appendWait(dst, 10, d.ResetAfter)
	dst = appendWait(dst, 11, d.Wait)
	dst = appendNumber(dst, 12, uint64(t.at))
	if o.isShadow(c.decider.modes) {
		dst = appendNumber(dst, 13, 1)
	}
	if t.by != 0 {
		dst = protowire.AppendFixed64(protowire.AppendTag(dst, 14, protowire.Fixed64Type), t.by)
	}
	return endMessage(dst, start)
}

// appendWait appends a time to wait as a Duration, and nothing where there is
// none or no end to it.
func appendWait(dst []byte, field protowire.Number, d time.Duration) []byte {
	if d <= 0 {
		return dst
	}
	return appendDuration(dst, field, d)
}

func appendDuration(dst []byte, field protowire.Number, d time.Duration) []byte {
	dst, start := beginMessage(dst, field)
	dst = appendNumber(dst, 1, uint64(d/time.Second))
	dst = appendNumber(dst, 2, uint64(d%time.Second))
	return endMessage(dst, start)
}
