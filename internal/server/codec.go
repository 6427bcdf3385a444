package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/server/accounts"
)

// wireRequest is a message that is read from its bytes without protobuf's own in
// between.
type wireRequest interface {
	// ReadWire reads the message, which nothing was read into before.
	ReadWire(message string) error
}

// wireAnswer is one that is written to its bytes.
type wireAnswer interface {
	// AppendWire appends the message, and ends its use.
	AppendWire(dst []byte) []byte
	// Held is what is charged for it.
	Held() *accounts.Charge
}

// request is a message that is charged for while it is decided, and then has the
// answer.
type request interface {
	wireRequest
	wireAnswer
	// Holds is how many bytes it holds then, beside those of any call.
	Holds() int64
}

// codec reads wireRequests and writes wireAnswers. All others, such as those of health and
// reflection, it leaves to gRPC's own.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Unmarshal implements encoding.CodecV2.
func (d codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(wireRequest)
	if !ok {
		return d.CodecV2.Unmarshal(data, v)
	}
	b := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	return m.ReadWire(string(b.ReadOnlyData()))
}

// Marshal implements encoding.CodecV2.
func (d codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(wireAnswer)
	if !ok {
		return d.CodecV2.Marshal(v)
	}
	held := *m.Held() // which the end of its use clears
	return held.Answer(m.AppendWire), nil
}

// unary describes a method of a door whose requests are read into what empty
// makes. The door counts those that cannot be read: too large ones, or garbage.
func unary[T request](d *door, service any, name, fullName string, empty func() T, answer func(context.Context, T) (any, error)) grpc.MethodDesc {
	info := &grpc.UnaryServerInfo{Server: service, FullMethod: fullName}
	handler := func(ctx context.Context, request any) (any, error) { return answer(ctx, request.(T)) }
	return grpc.MethodDesc{
		MethodName: name,
		Handler: func(_ any, ctx context.Context, read func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			charge, err := accounts.Begin(ctx)
			if err != nil {
				d.requests.add(status.Code(err))
				return nil, err
			}
			request := empty()
			held := request.Held()
			*held = charge
			err = read(request)
			if err == nil {
				err = held.More(ctx, request.Holds())
			}
			if err != nil {
				held.End()
				d.requests.add(status.Code(err))
				return nil, err
			}
			if d.storeWaits {
				held.Decide()
			}
			charge = *held // for the request may be another's after an error
			answer, err := interceptor(ctx, request, info, handler)
			if err != nil {
				charge.End()
			}
			return answer, err
		},
	}
}
