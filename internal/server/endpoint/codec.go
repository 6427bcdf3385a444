package endpoint

import (
	"context"
	"runtime"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/server/overload"
)

// Readable is a message that is read from its bytes, without protobuf's messages.
type Readable interface {
	// ReadWire reads the message. It is called once.
	ReadWire(message string) error
}

// Appendable is a message that is written to its bytes.
type Appendable interface {
	// AppendWire appends the message.
	AppendWire(dst []byte) []byte
	// Held returns what the message has reserved.
	Held() *overload.Charge
	// Release ends the use of the message, once it is written or if there is no answer
	// to write.
	Release()
}

// Message is a request that reserves memory while it is decided, and that then writes
// the answer.
type Message interface {
	Readable
	Appendable
	// Holds returns how many bytes it holds, beyond those that any call holds.
	Holds() int64
}

// Codec reads Readable messages and writes Appendable ones. It leaves all others,
// such as those of health and reflection, to gRPC's own codec.
type Codec struct {
	encoding.CodecV2
	// large bounds the messages of more than largeMessage bytes that are read at a time,
	// since they become many times their size before it is known whether there is room.
	large chan struct{}
}

const largeMessage = 32 << 10

// NewCodec returns a codec.
func NewCodec() Codec {
	return Codec{encoding.GetCodecV2(proto.Name), make(chan struct{}, 2*runtime.GOMAXPROCS(0))}
}

// Unmarshal implements encoding.CodecV2.
func (d Codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(Readable)
	if !ok {
		return d.CodecV2.Unmarshal(data, v)
	}
	if data.Len() > largeMessage {
		if c, ok := v.(Message); ok && c.Held().ReserveUnread(int64(data.Len())) != nil {
			return nil // and Unary refuses the call
		}
		d.large <- struct{}{}
		defer func() { <-d.large }()
	}
	b := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	return m.ReadWire(string(b.ReadOnlyData()))
}

// Marshal implements encoding.CodecV2.
func (d Codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(Appendable)
	if !ok {
		return d.CodecV2.Marshal(v)
	}
	defer m.Release()
	a := new(encoded)
	a.SliceBuffer = m.AppendWire(a.small[:0])
	a.slice[0] = a
	a.charge = m.Held().Answer(cap(a.SliceBuffer))
	a.refs.Store(1)
	return a.slice[:], nil
}

// encoded holds the bytes of an answer, and their charge until gRPC has sent or dropped
// them. As one piece of memory it takes one allocation.
type encoded struct {
	mem.SliceBuffer
	refs   atomic.Int32
	charge overload.Charge
	// Most answers fit here.
	small [96]byte
	slice [1]mem.Buffer
}

// Ref implements mem.Buffer.
func (a *encoded) Ref() { a.refs.Add(1) }

// Free implements mem.Buffer.
func (a *encoded) Free() {
	if a.refs.Add(-1) == 0 {
		a.charge.End()
	}
}

// Unary describes a method of an endpoint. empty makes a message, into which gRPC has
// Codec read the request (ReadWire). answer decides it. Then gRPC has Codec write it as
// the answer (AppendWire) and release it. The endpoint counts requests that cannot be
// read: too large ones, or garbage.
func Unary[T Message](e *Endpoint, service any, name, fullName string, empty func() T, answer func(context.Context, T) error) grpc.MethodDesc {
	info := &grpc.UnaryServerInfo{Server: service, FullMethod: fullName}
	answer = Traced(e, fullName, answer)
	handler := func(ctx context.Context, m any) (any, error) {
		request := m.(T)
		if err := answer(ctx, request); err != nil {
			request.Release()
			return nil, err
		}
		return request, nil
	}
	return grpc.MethodDesc{
		MethodName: name,
		Handler: func(_ any, ctx context.Context, read func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			growStack(false)
			charge, err := overload.Begin(ctx)
			if err != nil {
				e.Requests.Failed(status.Code(err))
				return nil, err
			}
			request := empty()
			held := request.Held()
			*held = charge
			err = read(request)
			if err == nil {
				err = held.Refused()
			}
			if err == nil {
				err = held.Reserve(request.Holds())
			}
			if err != nil {
				held.End()
				e.Requests.Failed(status.Code(err))
				return nil, err
			}
			charge = *held // after an error another call may use the request
			defer charge.End()
			return interceptor(ctx, request, info, handler)
		},
	}
}
