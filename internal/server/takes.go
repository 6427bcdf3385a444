package server

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// takes are requests that are decided each on its own: those of a
// TakeManyRequest, or numbered ones, of a message of a stream.
type takes struct {
	door     *door
	numbered bool
	items    []*item
	size     int // of the message
	// err is why none of them is to be decided.
	err error
}

// item is one of several requests, and what came of it.
type item struct {
	number uint64
	call   *call
	err    error
	// slots is how many of a stream's it holds while it is in flight.
	slots int
}

// readWire reads a TakeManyRequest or a TakeStreamRequest. A request in it that
// cannot be read fails alone.
func (t *takes) readWire(message string) error {
	t.size = len(message)
	f := fields{rest: message}
	for f.next() {
		if !f.is(1, bytesKind) {
			continue
		}
		if len(t.items) == t.door.bounds.Takes {
			// Not a message that cannot be read, which is what an error means here.
			t.err = invalid("takes: found more than %d in one message, at most so many are allowed (setting grpc.max_takes)", t.door.bounds.Takes)
			return nil
		}
		it := &item{call: t.door.decider.newCall()}
		t.items = append(t.items, it)
		if err := t.readItem(it, f.bytes); err != nil {
			it.err = invalid("the request: %v", err)
		}
	}
	return f.err
}

func (t *takes) readItem(it *item, message string) error {
	if !t.numbered {
		return it.call.unmarshalTake(message)
	}
	take := ""
	f := fields{rest: message}
	for f.next() {
		switch {
		case f.is(1, varintKind):
			it.number = f.varint
		case f.is(2, bytesKind):
			take += f.bytes // a message that comes in several parts is the sum of them
		}
	}
	if f.err != nil {
		return f.err
	}
	return it.call.unmarshalTake(take)
}

// appendWire appends the TakeManyResponse or the TakeStreamResponse.
func (t *takes) appendWire(dst []byte) []byte {
	for _, it := range t.items {
		var start, result int
		dst, start = beginMessage(dst, 1)
		if t.numbered {
			dst = appendNumber(dst, 1, it.number)
			dst, result = beginMessage(dst, 2)
		}
		dst = it.appendResult(dst)
		if t.numbered {
			dst = endMessage(dst, result)
		}
		dst = endMessage(dst, start)
	}
	t.release()
	return dst
}

// appendResult appends a TakeResult.
func (it *item) appendResult(dst []byte) []byte {
	if it.err == nil {
		dst, start := beginMessage(dst, 1)
		return endMessage(it.call.appendTakeResponse(dst), start)
	}
	s := status.Convert(it.err)
	dst, start := beginMessage(dst, 2)
	dst = appendNumber(dst, 1, uint64(s.Code()))
	dst = protowire.AppendString(protowire.AppendTag(dst, 2, bytesKind), s.Message())
	return endMessage(dst, start)
}

// release ends the use of the requests.
func (t *takes) release() {
	for _, it := range t.items {
		if it.call != nil {
			it.call.decider.release(it.call)
			it.call = nil
		}
	}
	t.items = nil
}

// holds is about how many bytes the requests hold: their message, and what was
// made of it.
func (t *takes) holds() int {
	const each = 256 // of a descriptor, with what it gets
	n := t.size
	for _, it := range t.items {
		n += each * len(it.call.descriptors)
	}
	return n
}

// answerAll decides all items: where the store waits at the same time, so that
// they wait together.
func (t *takes) answerAll(ctx context.Context) {
	if !t.door.storeWaits {
		for _, it := range t.items {
			t.door.answerItem(ctx, it)
		}
		return
	}
	var all sync.WaitGroup
	for _, it := range t.items {
		all.Go(func() { t.door.answerItem(ctx, it) })
	}
	all.Wait()
}

// answerItem decides an item, unless it could not be read. A panic is its alone.
func (d *door) answerItem(ctx context.Context, it *item) {
	defer func() {
		if p := recover(); p != nil {
			d.panics.add(p)
			it.call, it.err = nil, status.Error(codes.Internal, "internal error")
		}
	}()
	if it.err != nil {
		d.requests.add(status.Code(it.err))
		return
	}
	it.err = d.answer(ctx, it.call)
}
