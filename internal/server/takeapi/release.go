package takeapi

import (
	"github.com/ratelimitd/ratelimitd/internal/decide"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
	"github.com/ratelimitd/ratelimitd/proto/wire"
)

func (a *API) newRelease() *oneCall {
	return a.newCall(takeCall.unmarshalRelease, takeCall.appendReleaseResponse)
}

// unmarshalRelease reads a ReleaseRequest, which has the fields of a TakeRequest.
func (c takeCall) unmarshalRelease(request string) error {
	err := c.unmarshalTake(request)
	c.toRelease()
	return err
}

// toRelease makes a call that was read as a take release what its holders have.
func (c takeCall) toRelease() {
	c.Releases = true
	c.ID, c.HasSettleWithin = "", false
	for i := range c.Descriptors {
		d := &c.Descriptors[i]
		d.Own, d.HasHitsAddend, d.HitsAddend, d.Refund = decide.Override{}, true, 1, true
	}
}

// appendReleaseResponse appends the ReleaseResponse of a call that has released.
func (c takeCall) appendReleaseResponse(dst []byte) []byte {
	degraded := false
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		for j, l := range o.Limits {
			d := &o.Decisions[j]
			var start int
			dst, start = wire.BeginMessage(dst, 1)
			dst = wire.AppendNumber(dst, 1, uint64(i))
			if l.Name != "" {
				dst = wire.AppendText(dst, 2, l.Name)
			}
			dst = wire.AppendNumber(dst, 3, uint64(d.Released)+uint64(ratelimitv1.Released_RELEASED_NOTHING))
			dst = wire.AppendNumber(dst, 4, uint64(d.Remaining))
			dst = wire.EndMessage(dst, start)
			degraded = degraded || d.Degraded
		}
	}
	if degraded {
		dst = wire.AppendNumber(dst, 2, 1)
	}
	return dst
}
