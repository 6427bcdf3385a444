package takeapi

import (
	"context"

	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	"github.com/ratelimitd/ratelimitd/internal/server/overload"
	"github.com/ratelimitd/ratelimitd/proto/wire"
)

// giveBackCall is a GiveBackRequest: a take, and the moments and fingerprints of
// its response. Its answer is empty.
type giveBackCall struct {
	overload.Charge
	endpoint.GiveBack
	api  *API
	call *decide.Call
	// more counts moments and fingerprints beyond the bounds, which are not read.
	more int
}

// momentsPerDescriptor bounds the limits of a descriptor in a give-back.
const momentsPerDescriptor = 100

func (a *API) newGiveBack() *giveBackCall {
	return &giveBackCall{api: a, call: a.Decider.Call(a.Decider.Clock())}
}

func (g *giveBackCall) maxMoments() int { return momentsPerDescriptor * g.api.Bounds.Descriptors }

// ReadWire reads a GiveBackRequest.
func (g *giveBackCall) ReadWire(message string) error {
	g.call.Size = len(message)
	var take parts
	f := wire.Fields[string]{Rest: message}
	for f.Next() {
		switch {
		case f.Is(1, wire.Bytes):
			take.add(f.Bytes)
		case f.Is(2, wire.Varint):
			g.addMoment(f.Varint)
		case f.Is(3, wire.Fixed64):
			g.addFingerprint(f.Varint)
		case f.Is(2, wire.Bytes):
			f.Err = eachPacked(f.Bytes, (*wire.Fields[string]).ReadVarint, g.addMoment)
		case f.Is(3, wire.Bytes):
			f.Err = eachPacked(f.Bytes, (*wire.Fields[string]).ReadFixed64, g.addFingerprint)
		}
	}
	if f.Err != nil {
		return f.Err
	}
	return takeCall{g.call}.unmarshalTake(take.join())
}

func (g *giveBackCall) Holds() int64 {
	return g.call.Holds() + 8*int64(len(g.TakenAt)+len(g.TakenBy))
}

func (g *giveBackCall) addMoment(v uint64) {
	if len(g.TakenAt) == g.maxMoments() {
		g.more++
		return
	}
	g.TakenAt = append(g.TakenAt, int64(v))
}

func (g *giveBackCall) addFingerprint(v uint64) {
	if len(g.TakenBy) == g.maxMoments() {
		g.more++
		return
	}
	g.TakenBy = append(g.TakenBy, v)
}

// eachPacked calls add with each number of a packed field.
func eachPacked(numbers string, read func(*wire.Fields[string]) (uint64, bool), add func(uint64)) error {
	packed := wire.Fields[string]{Rest: numbers}
	for packed.Rest != "" {
		v, ok := read(&packed)
		if !ok {
			return packed.Err
		}
		add(v)
	}
	return nil
}

// AppendWire appends the GiveBackResponse, which is empty.
func (g *giveBackCall) AppendWire(dst []byte) []byte { return dst }

// Release ends the use of the request.
func (g *giveBackCall) Release() { g.call.Release() }

// giveBackTake gives back a take.
func (a *API) giveBackTake(ctx context.Context, g *giveBackCall) error {
	if g.more > 0 {
		err := endpoint.Invalid("taken_at, taken_by: found %d numbers, at most %d of each are allowed", len(g.TakenAt)+len(g.TakenBy)+g.more, g.maxMoments())
		a.Requests.Failed(status.Code(err))
		return err
	}
	return a.Answer(ctx, g.call, &g.GiveBack)
}

// boundsOfGiveBack returns the bounds of a body with a GiveBackRequest.
func boundsOfGiveBack(b decide.Bounds) endpoint.JSONBounds {
	j := endpoint.BoundsOfRequest(b)
	const number = 24 // 20 digits, quotes and a comma
	numbers := 2 * momentsPerDescriptor * b.Descriptors
	j.Values += numbers
	j.Bytes += numbers * number
	return j
}
