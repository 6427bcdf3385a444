package takeapi

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/proto/wire"
)

func (a *API) newSettle() *oneCall {
	return a.newCall(takeCall.unmarshalSettle, takeCall.appendSettleResponse)
}

// unmarshalSettle reads a SettleRequest into an empty call, which keeps parts of it.
func (c takeCall) unmarshalSettle(request string) error {
	c.IsSettlement = true
	f := wire.Fields[string]{Rest: request}
	for f.Next() {
		switch {
		case f.Is(1, wire.Bytes):
			c.Domain = f.Text()
		case f.Is(2, wire.Bytes):
			c.ID = f.Text()
		case f.Is(3, wire.Bytes):
			if c.IsFull() {
				continue
			}
			if err := c.unmarshalAsked(f.Bytes); err != nil {
				return err
			}
		}
	}
	c.SettleEntries()
	return f.Err
}

// unmarshalWithin reads how long a take can be settled. A Duration that is too long for a
// time.Duration becomes one that is too long for a take.
func (c takeCall) unmarshalWithin(message string) error {
	c.HasSettleWithin = true
	var d numbers
	err := d.unmarshalPeriod(message)
	const maxSeconds = int64(1 << 31)
	c.SettleWithin = time.Duration(min(max(d.seconds, -maxSeconds), maxSeconds))*time.Second + time.Duration(d.nanos)
	return err
}

// appendSettleResponse appends the SettleResponse of a call that has settled.
func (c takeCall) appendSettleResponse(dst []byte) []byte {
	if c.IsSettled() {
		dst = wire.AppendNumber(dst, 1, 1)
	}
	degraded := false
	for i := range c.Settled {
		dst = c.appendSettledLimit(dst, &c.Settled[i])
		degraded = degraded || c.Settled[i].Degraded && c.Settled[i].IsKnown
	}
	if degraded {
		dst = wire.AppendNumber(dst, 3, 1)
	}
	return dst
}

// appendSettledLimit appends a SettledLimit.
func (c takeCall) appendSettledLimit(dst []byte, s *decide.Settled) []byte {
	o := &c.Outcomes[s.Descriptor]
	l := o.Limits[s.Limit]
	dst, start := wire.BeginMessage(dst, 2)
	dst = wire.AppendNumber(dst, 1, uint64(s.Descriptor))
	if l.Name != "" && o.Own == nil {
		dst = wire.AppendText(dst, 2, l.Name)
	}
	dst = wire.AppendNumber(dst, 3, uint64(l.Algorithm))
	if s.IsKnown {
		dst = wire.AppendNumber(dst, 4, 1)
	}
	for i, n := range [...]int64{s.Returned, s.Added, s.Takes, s.Remaining} {
		dst = wire.AppendNumber(dst, protowire.Number(5+i), uint64(n))
	}
	dst = appendWait(dst, 9, s.ResetAfter)
	return wire.EndMessage(dst, start)
}
