package takeapi

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	"github.com/ratelimitd/ratelimitd/internal/server/overload"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
	"github.com/ratelimitd/ratelimitd/proto/wire"
)

// takes is a TakeManyRequest. Each of its requests is decided by itself.
type takes struct {
	overload.Charge
	api   *API
	items []*item
	// err refuses all of them.
	err error
}

// item is one of several requests, and then its answer.
type item struct {
	number uint64
	call   takeCall
	err    error
	// traceparent is what the caller of a stream says about its span; it may be any
	// text.
	traceparent string
	// isStreamed says whether it came on a stream, where it may be a settlement.
	isStreamed, isSettlement bool
	// releases says that it frees the slots of its holders instead of taking.
	releases bool
	// span is its part of the span of a TakeManyRequest, or nil.
	span *tracing.Span
	// answers has it answered and counted with others; nil for by itself.
	answers *endpoint.Answers
	// slots is how many slots of a stream it holds while it is in flight.
	slots int
}

// An item holds this many bytes until it is answered: its call and its answer, and a
// goroutine's stack if the store waits.
const (
	itemCost        = 6 << 10
	waitingItemCost = 8 << 10
)

func (a *API) itemCost() int {
	if a.RemoteStore {
		return waitingItemCost
	}
	return itemCost
}

// countTakes counts the requests in a TakeManyRequest or a TakeStreamRequest. tooMany
// is set if there are more than allowed; err is set if the message cannot be read.
func (a *API) countTakes(message string) (n int, tooMany, err error) {
	f := wire.Fields[string]{Rest: message}
	for f.Next() {
		if !f.Is(1, wire.Bytes) {
			continue
		}
		if n == a.Bounds.Takes {
			return n, endpoint.Invalid("takes: found more than %d in one message, at most so many are allowed (setting grpc.max_takes)", a.Bounds.Takes), nil
		}
		n++
	}
	return n, nil, f.Err
}

// ReadWire reads a TakeManyRequest. All requests are charged before they are read.
// One that cannot be read fails alone.
func (t *takes) ReadWire(message string) error {
	n, tooMany, err := t.api.countTakes(message)
	if err != nil {
		return err
	}
	t.err = tooMany
	if t.err == nil {
		t.err = t.Reserve(int64(4*len(message) + n*t.api.itemCost()))
	}
	if t.err != nil {
		return nil
	}
	t.items = make([]*item, 0, n)
	began := t.api.Decider.Clock()
	f := wire.Fields[string]{Rest: message}
	for f.Next() {
		if f.Is(1, wire.Bytes) {
			it := new(item)
			t.api.readItem(it, f.Bytes, false, began)
			t.items = append(t.items, it)
		}
	}
	return f.Err
}

// Holds returns 0, since ReadWire has charged the requests.
func (t *takes) Holds() int64 { return 0 }

// readItem reads a request that began at began into an item, with its number if it has
// one.
func (a *API) readItem(it *item, message string, isNumbered bool, began time.Duration) {
	*it = item{call: takeCall{a.Decider.Call(began)}, isStreamed: isNumbered}
	var err error
	if isNumbered {
		message, err = it.readNumbered(message)
	}
	switch {
	case err != nil:
	case it.isSettlement:
		err = it.call.unmarshalSettle(message)
	default:
		err = it.call.unmarshalTake(message)
	}
	switch {
	case err != nil:
		it.err = endpoint.Invalid("the request: %v", err)
	case it.isSettlement && it.releases:
		it.err = endpoint.Invalid("release: found it beside settle; allowed: a take")
	case it.releases:
		it.call.toRelease()
	}
}

// readNumbered reads a NumberedTake, and returns the take in it, or the settlement if it has
// one.
func (it *item) readNumbered(message string) (asked string, err error) {
	var take, settlement parts
	f := wire.Fields[string]{Rest: message}
	for f.Next() {
		switch {
		case f.Is(1, wire.Varint):
			it.number = f.Varint
		case f.Is(3, wire.Bytes):
			it.traceparent = f.Text()
		case f.Is(2, wire.Bytes):
			take.add(f.Bytes)
		case f.Is(5, wire.Bytes):
			it.isSettlement = true
			settlement.add(f.Bytes)
		case f.Is(4, wire.Varint):
			it.releases = f.Varint != 0
		}
	}
	if it.isSettlement {
		take = settlement
	}
	return take.join(), f.Err
}

// parts are those of a message. In protobuf one in several parts is their sum.
type parts struct {
	first string
	more  []string
}

func (p *parts) add(part string) {
	if p.first == "" {
		p.first = part
	} else {
		p.more = append(p.more, part)
	}
}

func (p *parts) join() string {
	if p.more == nil {
		return p.first
	}
	return p.first + strings.Join(p.more, "")
}

// AppendWire appends the TakeManyResponse.
func (t *takes) AppendWire(dst []byte) []byte {
	for _, it := range t.items {
		var start int
		dst, start = wire.BeginMessage(dst, 1)
		dst = wire.EndMessage(it.appendResult(dst), start)
	}
	return dst
}

// appendNumbered appends a NumberedResult to a TakeStreamResponse, and ends the
// use of the request.
func (it *item) appendNumbered(dst []byte) []byte {
	dst, start := wire.BeginMessage(dst, 1)
	dst = wire.AppendNumber(dst, 1, it.number)
	dst, result := wire.BeginMessage(dst, 2)
	dst = wire.EndMessage(it.appendResult(dst), result)
	it.release()
	return wire.EndMessage(dst, start)
}

// appendResult appends a TakeResult.
func (it *item) appendResult(dst []byte) []byte {
	switch {
	case it.err != nil:
	case it.isSettlement:
		dst, start := wire.BeginMessage(dst, 3)
		return wire.EndMessage(it.call.appendSettleResponse(dst), start)
	case it.releases:
		dst, start := wire.BeginMessage(dst, 4)
		return wire.EndMessage(it.call.appendReleaseResponse(dst), start)
	default:
		dst, start := wire.BeginMessage(dst, 1)
		return wire.EndMessage(it.call.appendTakeResponse(dst), start)
	}
	s := status.Convert(it.err)
	dst, start := wire.BeginMessage(dst, 2)
	dst = wire.AppendNumber(dst, 1, uint64(s.Code()))
	dst = protowire.AppendString(protowire.AppendTag(dst, 2, wire.Bytes), s.Message())
	return wire.EndMessage(dst, start)
}

// Release ends the use of the requests.
func (t *takes) Release() {
	for _, it := range t.items {
		it.release()
	}
	t.items = nil
}

func (it *item) release() {
	if it.call.Call != nil {
		it.call.Release()
		it.call = takeCall{}
	}
}

// answerBound matches the requests and returns no less than the bytes of the
// response.
func (t *takes) answerBound() int {
	const each = 256 // of an error
	n := 0
	for _, it := range t.items {
		if n += each; n > endpoint.MaxAnswer {
			break // it is too long already
		}
		if it.err != nil || !it.call.HitsCharged {
			continue // it gets an error
		}
		if t.api.Decider.Match(it.call.Call) == nil {
			n += t.api.AnswerBound(it.call.Call)
		}
	}
	return n
}

// chargeHits charges what the hits of all valid items take, since all are matched before the
// first is decided, and returns how much that is.
func (t *takes) chargeHits(ctx context.Context) (int64, error) {
	bytes := int64(0)
	for _, it := range t.items {
		if it.err == nil && t.api.Admit(ctx, it.call.Call, nil) == nil { // otherwise Answer says why
			bytes += it.call.HitBytes()
			it.call.HitsCharged = true
		}
	}
	if bytes == 0 {
		return 0, nil
	}
	return bytes, overload.Of(ctx).Reserve(bytes)
}

// answerAll decides all items, at the same time if the store waits. They are parts of
// span, which may be nil.
func (t *takes) answerAll(ctx context.Context, span *tracing.Span) {
	answer := func(it *item) { t.api.answerItem(ctx, it) }
	if span != nil {
		answer = func(it *item) { t.api.answerItem(it.part(ctx, span), it) }
	}
	if !t.api.RemoteStore {
		answers := t.api.Answers(t.items[0].call.Began)
		defer answers.End()
		for _, it := range t.items {
			it.answers = &answers
			answer(it)
		}
		return
	}
	var all sync.WaitGroup
	if span != nil {
		for _, it := range t.items {
			all.Go(func() { answer(it) })
		}
	} else {
		for items := range slices.Chunk(t.items, maxTogether) {
			all.Go(func() { t.api.answerTogether(ctx, items, answer, func(...*item) {}) })
		}
	}
	all.Wait()
}

// answerItem decides an item that could be read. A panic fails this item alone.
func (a *API) answerItem(ctx context.Context, it *item) {
	defer func() {
		if p := recover(); p != nil {
			a.Panics.Add(p)
			it.call, it.err = takeCall{}, status.Error(codes.Internal, "internal error")
		}
	}()
	if it.err != nil {
		a.Requests.Failed(status.Code(it.err))
		return
	}
	if a.Tracer != nil && it.isStreamed {
		it.err = a.answerStreamed(ctx, it)
		return
	}
	if it.answers != nil {
		it.err = it.answers.Answer(ctx, it.call.Call, nil)
	} else {
		it.err = a.Answer(ctx, it.call.Call, nil)
	}
}
