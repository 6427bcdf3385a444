package takeapi

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	"github.com/ratelimitd/ratelimitd/proto/wire"
)

// These are the messages of proto/ratelimit/v1/ratelimit.proto, by the numbers of their
// fields. They are read and written like those of package envoyrls.

// unmarshalTake reads a TakeRequest into an empty call, which keeps parts of it.
func (c takeCall) unmarshalTake(request string) error {
	f := wire.Fields[string]{Rest: request}
	for f.Next() {
		switch {
		case f.Is(1, wire.Bytes):
			c.Domain = f.Text()
		case f.Is(2, wire.Bytes):
			if c.IsFull() {
				continue
			}
			if err := c.unmarshalAsked(f.Bytes); err != nil {
				return err
			}
		case f.Is(3, wire.Bytes):
			c.ID = f.Text()
		case f.Is(4, wire.Bytes):
			if err := c.unmarshalWithin(f.Bytes); err != nil {
				return err
			}
		case f.Is(5, wire.Varint):
			c.Lease = f.Varint
		}
	}
	c.SettleEntries()
	return f.Err
}

// unmarshalAsked reads a Descriptor.
func (c takeCall) unmarshalAsked(message string) error {
	start := len(c.Entries)
	var d decide.Descriptor
	var limit numbers
	f := wire.Fields[string]{Rest: message}
	for f.Next() {
		var err error
		switch {
		case f.Is(1, wire.Bytes):
			if c.IsFullOf(&d, start) {
				continue
			}
			var e bucket.Entry
			e.Key, e.Value, err = wire.Pair(f.Bytes, false)
			c.Entries = append(c.Entries, e)
		case f.Is(2, wire.Varint):
			d.HasHitsAddend, d.HitsAddend = true, f.Varint
		case f.Is(3, wire.Bytes):
			d.Own.Set = true
			err = limit.unmarshal(f.Bytes)
		}
		if err != nil {
			return err
		}
	}
	if d.Own.Set {
		d.Own = limit.override(len(c.Descriptors))
	}
	c.AddDescriptor(d, start)
	return f.Err
}

// numbers are the numbers of a descriptor's own limit.
type numbers struct {
	requests, burst uint64
	seconds         int64
	nanos           int32
}

// unmarshal reads Numbers. A message that comes in several parts is their sum.
func (n *numbers) unmarshal(message string) error {
	f := wire.Fields[string]{Rest: message}
	for f.Next() {
		switch {
		case f.Is(1, wire.Varint):
			n.requests = f.Varint
		case f.Is(2, wire.Bytes):
			if err := n.unmarshalPeriod(f.Bytes); err != nil {
				return err
			}
		case f.Is(3, wire.Varint):
			n.burst = f.Varint
		}
	}
	return f.Err
}

// unmarshalPeriod reads a Duration (google/protobuf/duration.proto).
func (n *numbers) unmarshalPeriod(message string) error {
	f := wire.Fields[string]{Rest: message}
	for f.Next() {
		switch {
		case f.Is(1, wire.Varint):
			n.seconds = int64(f.Varint)
		case f.Is(2, wire.Varint):
			n.nanos = int32(f.Varint)
		}
	}
	return f.Err
}

// override returns the limit of descriptor i.
func (n *numbers) override(i int) decide.Override {
	o := decide.Override{Set: true, Requests: n.requests, Burst: n.burst, Names: &numbersNames}
	o.Period, o.Invalid = n.period(i)
	return o
}

// period returns the period, or an error if the Duration is invalid. A Duration
// that is too long for a time.Duration becomes one that is too long for a limit.
func (n *numbers) period(i int) (time.Duration, error) {
	if n.nanos <= -1e9 || n.nanos >= 1e9 || n.seconds > 0 && n.nanos < 0 || n.seconds < 0 && n.nanos > 0 {
		return 0, endpoint.Invalid("descriptors[%d].numbers.period: found %d seconds and %d nanos; allowed: nanos under a second, of the same sign as seconds", i, n.seconds, n.nanos)
	}
	const maxSeconds = int64(1 << 31)
	return time.Duration(min(max(n.seconds, -maxSeconds), maxSeconds))*time.Second + time.Duration(n.nanos), nil
}

// numbersNames are the names of Numbers.
var numbersNames = decide.OwnNames{Whole: "numbers", Fields: map[string]string{
	"requests": "numbers.requests", "period": "numbers.period", "burst": "numbers.burst",
}}

// appendTakeResponse appends the TakeResponse of a decided call.
func (c takeCall) appendTakeResponse(dst []byte) []byte {
	if !c.Denied {
		dst = wire.AppendNumber(dst, 1, 1)
	}
	degraded := false
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		for j := range o.Limits {
			dst = c.appendLimitStatus(dst, i, j)
			degraded = degraded || o.Decisions[j].Degraded
		}
	}
	isUnknown := false
	if c.Denied {
		i, j, d := c.Denier()
		dst = protowire.AppendVarint(protowire.AppendTag(dst, 3, wire.Varint), uint64(c.Outcomes[i].First+j))
		dst = appendWait(dst, 4, d.RetryAfter)
		isUnknown = d.RetryAfter == bucket.Unknown
	}
	if degraded {
		dst = wire.AppendNumber(dst, 5, 1)
	}
	if isUnknown {
		dst = wire.AppendNumber(dst, 6, 1)
	}
	dst = wire.AppendNumber(dst, 7, uint64(c.Granted))
	return appendWait(dst, 8, c.GoodFor())
}

// appendLimitStatus appends a Limit: what limit j of descriptor i decided about a hit,
// and what the hit took.
func (c takeCall) appendLimitStatus(dst []byte, i, j int) []byte {
	o := &c.Outcomes[i]
	l, d, t := o.Limits[j], &o.Decisions[j], c.Taken(o, j)
	dst, start := wire.BeginMessage(dst, 2)
	dst = wire.AppendNumber(dst, 1, uint64(i))
	if l.Name != "" && o.Own == nil {
		dst = wire.AppendText(dst, 2, l.Name)
	}
	dst = wire.AppendNumber(dst, 3, uint64(l.Algorithm))
	dst = wire.AppendNumber(dst, 4, uint64(l.Requests))
	dst = wire.AppendDuration(dst, 5, l.PeriodAt(d))
	dst = wire.AppendNumber(dst, 6, uint64(l.Capacity))
	dst = wire.AppendNumber(dst, 7, uint64(d.Remaining))
	if d.Allowed() {
		dst = wire.AppendNumber(dst, 8, 1)
	}
	dst = appendWait(dst, 9, d.RetryAfter)
	dst = appendWait(dst, 10, d.ResetAfter)
	if d.RetryAfter != bucket.Unknown {
		dst = appendWait(dst, 11, d.Wait)
	}
	dst = wire.AppendNumber(dst, 12, uint64(t.At))
	if c.IsShadow(o) || !o.Enforces(j) {
		dst = wire.AppendNumber(dst, 13, 1)
	}
	if t.By != 0 {
		dst = protowire.AppendFixed64(protowire.AppendTag(dst, 14, protowire.Fixed64Type), t.By)
	}
	switch {
	case d.RetryAfter == bucket.Unknown:
		dst = wire.AppendNumber(dst, 15, 1)
		dst = appendWait(dst, 16, d.FreeAtLatest())
	case o.Hits[j].Holder != "":
		dst = appendWait(dst, 17, c.HeldFor(o, j))
	}
	if l.Calendar.Unit != bucket.NoCalendar {
		dst = appendCalendar(dst, l, d)
	}
	dst = appendWait(dst, 20, d.Paused)
	return wire.EndMessage(dst, start)
}

// appendCalendar appends the fields of a Limit that one by calendar has.
func appendCalendar(dst []byte, l *bucket.Limit, d *bucket.Decision) []byte {
	if at := l.ResetAt(d); at != 0 {
		// A Timestamp has the fields of a Duration, here since the Unix epoch.
		dst = wire.AppendDuration(dst, 18, time.Duration(at)*time.Microsecond)
	}
	dst, start := wire.BeginMessage(dst, 19)
	dst = wire.AppendNumber(dst, 1, uint64(l.Calendar.Unit))
	dst = wire.AppendText(dst, 2, l.Calendar.Zone.String())
	if starts := l.Calendar.Starts.String(); starts != "" {
		dst = wire.AppendText(dst, 3, starts)
	}
	return wire.EndMessage(dst, start)
}

// appendWait appends a time to wait as a Duration, if there is a wait and it ends.
func appendWait(dst []byte, field protowire.Number, d time.Duration) []byte {
	if d <= 0 {
		return dst
	}
	return wire.AppendDuration(dst, field, d)
}
