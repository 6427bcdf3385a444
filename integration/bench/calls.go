package main

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// door is how the daemon is asked; through the Go client, by other processes. The bare
// servers are always asked by Envoy's RPC, one request a call.
type door string

const (
	envoyDoor  door = ""
	manyDoor   door = "TakeMany"
	streamDoor door = "TakeStream"

	leaseDoor    door = "the Go client"
	unleasedDoor door = "the Go client without leases"
)

// batchRequest is a marshalled TakeManyRequest or TakeStreamRequest whose values
// can be changed in place.
type batchRequest struct{ parts []request }

func newBatchRequest(d door, key string, n int) *batchRequest {
	b := new(batchRequest)
	for i := range n {
		take := &ratelimitv1.TakeRequest{
			Domain:      domain,
			Descriptors: []*ratelimitv1.Descriptor{{Entries: []*ratelimitv1.Entry{{Key: descriptorKey(key, 0), Value: blank}}}},
		}
		// Concatenated messages of one item each are one message of all items.
		if d == streamDoor {
			b.parts = append(b.parts, blanksOf(marshal(&ratelimitv1.TakeStreamRequest{
				Takes: []*ratelimitv1.NumberedTake{{Number: uint64(i), Take: take}},
			})))
		} else {
			b.parts = append(b.parts, blanksOf(marshal(&ratelimitv1.TakeManyRequest{Takes: []*ratelimitv1.TakeRequest{take}})))
		}
	}
	return b
}

func (b *batchRequest) bytes() (all []byte) {
	for i := range b.parts {
		all = append(all, b.parts[i].bytes...)
	}
	return all
}

// batchReply counts the results of a TakeManyResponse or TakeStreamResponse,
// which are both a list of messages: of results, or of numbered ones.
type batchReply struct {
	door                       door
	ok, over, failed, degraded int64
}

func (r *batchReply) parse(text []byte) error {
	*r = batchReply{door: r.door}
	return eachField(text, func(_ protowire.Number, item []byte) error {
		if r.door == manyDoor {
			return r.result(item)
		}
		return eachField(item, func(field protowire.Number, result []byte) error {
			if field == 2 {
				return r.result(result)
			}
			return nil
		})
	})
}

// result counts a TakeResult.
func (r *batchReply) result(text []byte) error {
	return eachField(text, func(field protowire.Number, response []byte) error {
		if field != 1 {
			r.failed++
			return nil
		}
		allowed := false
		err := eachField(response, func(field protowire.Number, _ []byte) error {
			allowed = allowed || field == 1 // left out if it is false
			if field == 5 {
				r.degraded++
			}
			return nil
		})
		if allowed {
			r.ok++
		} else {
			r.over++
		}
		return err
	})
}

// eachField calls f with the fields of a message, and the content of those that
// have a length.
func eachField(text []byte, f func(field protowire.Number, content []byte) error) error {
	for len(text) > 0 {
		field, kind, n := protowire.ConsumeTag(text)
		if n < 0 {
			return protowire.ParseError(n)
		}
		text = text[n:]
		var content []byte
		if kind == protowire.BytesType {
			content, _ = protowire.ConsumeBytes(text)
		}
		if n = protowire.ConsumeFieldValue(field, kind, text); n < 0 {
			return protowire.ParseError(n)
		}
		if err := f(field, content); err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

// batchCaller asks several requests at a time through one of the daemon's own
// doors.
type batchCaller struct {
	*caller
	door    door
	request *batchRequest
	// stream is nil until there is one; it ends with ctx.
	stream grpc.ClientStream
	ctx    context.Context
}

func newBatchCaller(c *caller, l load) *batchCaller {
	return &batchCaller{caller: c, door: l.door, request: newBatchRequest(l.door, l.key, l.together)}
}

// closedLoop sends messages, each when all requests of the one before are answered, until
// stage says that the slice ends.
func (b *batchCaller) closedLoop(stage *atomic.Int32) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.ctx = ctx
	for stage.Load() != ending {
		began := time.Now()
		err := b.ask()
		if err != nil {
			b.tally.failed.Add(1)
			b.tally.failure.Store(&err)
			b.stream = nil
			time.Sleep(afterFailure)
			continue
		}
		if stage.Load() == measuring {
			b.latency.record(time.Since(began))
		}
	}
}

func (b *batchCaller) ask() error {
	for i := range b.request.parts {
		b.request.parts[i].set(b.pick())
	}
	reply := &batchReply{door: b.door}
	if b.door == manyDoor {
		if err := b.conn.Invoke(b.ctx, ratelimitv1.RateLimitService_TakeMany_FullMethodName, b.request, reply); err != nil {
			return err
		}
		b.count(reply)
		return nil
	}
	if b.stream == nil {
		s, err := b.conn.NewStream(b.ctx, &ratelimitv1.RateLimitService_ServiceDesc.Streams[0], ratelimitv1.RateLimitService_TakeStream_FullMethodName)
		if err != nil {
			return err
		}
		b.stream = s
	}
	if err := b.stream.SendMsg(b.request); err != nil && err != io.EOF { // RecvMsg says why
		return err
	}
	for left := int64(len(b.request.parts)); left > 0; {
		if err := b.stream.RecvMsg(reply); err != nil {
			return err
		}
		left -= reply.ok + reply.over + reply.failed
		b.count(reply)
	}
	return nil
}

func (b *batchCaller) count(r *batchReply) {
	b.tally.ok.Add(r.ok)
	b.tally.over.Add(r.over)
	b.tally.failed.Add(r.failed)
	b.tally.degraded.Add(r.degraded)
}

// rawCodec sends requests that are already marshalled, and reads only what is counted
// from responses, so that the generator leaves the processors to the servers.
type rawCodec struct{}

// Name is that of the codec whose bytes these are.
func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	switch r := v.(type) {
	case *request:
		return mem.BufferSlice{mem.SliceBuffer(r.bytes)}, nil
	case *batchRequest:
		return mem.BufferSlice{mem.SliceBuffer(r.bytes())}, nil
	}
	return nil, errors.New("neither a *request nor a *batchRequest")
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(interface{ parse(text []byte) error })
	if !ok {
		return errors.New("neither a *reply nor a *batchReply")
	}
	if len(data) == 1 {
		return r.parse(data[0].ReadOnlyData())
	}
	return r.parse(data.Materialize())
}

// reply is what is counted of a response.
type reply struct {
	code     rlsv3.RateLimitResponse_Code
	statuses int
	// degraded is whether there is dynamic metadata, which is where the daemon
	// says so.
	degraded bool
}

// The fields of a RateLimitResponse.
const (
	fieldOverallCode     = 1
	fieldStatuses        = 2
	fieldDynamicMetadata = 6
)

func (r *reply) parse(text []byte) error {
	*r = reply{}
	for len(text) > 0 {
		field, kind, n := protowire.ConsumeTag(text)
		if n < 0 {
			return protowire.ParseError(n)
		}
		text = text[n:]
		switch field {
		case fieldOverallCode:
			code, _ := protowire.ConsumeVarint(text)
			r.code = rlsv3.RateLimitResponse_Code(code)
		case fieldStatuses:
			r.statuses++
		case fieldDynamicMetadata:
			r.degraded = true
		}
		if n = protowire.ConsumeFieldValue(field, kind, text); n < 0 {
			return protowire.ParseError(n)
		}
		text = text[n:]
	}
	return nil
}
