package takeapi

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server/overload"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
	"github.com/ratelimitd/ratelimitd/proto/wire"
)

// release is a ReleaseRequest, which has the fields of a TakeRequest, and then its
// answer.
type release struct {
	takeCall
	overload.Charge
}

func (a *API) newRelease() *release {
	return &release{takeCall: takeCall{a.Decider.Call(a.Decider.Clock())}}
}

// ReadWire reads a ReleaseRequest.
func (r *release) ReadWire(message string) error {
	r.Size = len(message)
	err := r.unmarshalTake(message)
	r.toRelease()
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

// AppendWire appends the ReleaseResponse.
func (r *release) AppendWire(dst []byte) []byte { return r.appendReleaseResponse(dst) }

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

// answerRelease frees the slots of the request's holders.
func (a *API) answerRelease(ctx context.Context, r *release) error {
	return a.Answer(ctx, r.Call, nil)
}
