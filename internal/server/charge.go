package server

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
)

// charge is what a call has on the account of its connection.
type charge struct {
	account *account
	bytes   int64
	// deciding is how much of it waits for the store.
	deciding int64
	// running is 1 until the handler has ended.
	running int64
}

// held is what a message has that is charged.
func (h *charge) held() *charge { return h }

// begin charges an open call. Its error is for the caller.
func begin(ctx context.Context) (charge, error) {
	a := accountOf(ctx)
	if a == nil {
		return charge{}, nil
	}
	bytes, hasCaller := a.begin()
	held := charge{account: a, bytes: bytes, running: 1}
	err := errGone
	if hasCaller {
		err = a.await(ctx, 0)
	}
	if err != nil {
		held.end()
		return charge{}, err
	}
	return held, nil
}

// accountOf returns that of the connection of a gRPC call.
func accountOf(ctx context.Context) *account {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(interface{ Account() *account }); ok {
			return info.Account()
		}
	}
	return nil
}

// smallRequest is what callCost covers of a request.
const smallRequest = 2 << 10

// more charges, once there is room, what a request of so many bytes holds
// beyond what is charged for each.
func (h *charge) more(ctx context.Context, bytes int64) error {
	if bytes <= smallRequest {
		return nil
	}
	if err := h.account.reserve(ctx, bytes); err != nil {
		return err
	}
	h.bytes += bytes
	return nil
}

// decide notes that all of it waits for the store from now on.
func (h *charge) decide() {
	h.deciding = h.bytes
	h.account.change(0, h.deciding)
}

func (h *charge) end() {
	h.account.finish(h.bytes, h.deciding, h.running)
	*h = charge{}
}

// answer is the bytes of an answer, which are charged until gRPC has sent them
// or given them up.
type answer struct {
	mem.SliceBuffer
	refs   atomic.Int32
	charge charge
	// All that most take is in one piece.
	small [usualAnswer]byte
	slice [1]mem.Buffer
}

// usualAnswer has room for most answers, in bytes.
const usualAnswer = 96

// answer writes an answer, and charges what it holds for what the request did.
func (h charge) answer(write func(dst []byte) []byte) mem.BufferSlice {
	a := new(answer)
	a.SliceBuffer = write(a.small[:0])
	a.slice[0] = a
	if h.account == nil {
		return a.slice[:]
	}
	n := min(h.bytes, callCost) // what the request took is gone
	if cap(a.SliceBuffer) > smallRequest {
		n += int64(cap(a.SliceBuffer))
	}
	if n != h.bytes || h.deciding != 0 {
		h.account.change(n-h.bytes, -h.deciding)
		h.bytes, h.deciding = n, 0
	}
	h.account.ended(h.running)
	h.running = 0
	a.charge = h
	a.refs.Store(1)
	return a.slice[:]
}

// Ref implements mem.Buffer.
func (a *answer) Ref() { a.refs.Add(1) }

// Free implements mem.Buffer.
func (a *answer) Free() {
	if a.refs.Add(-1) == 0 {
		a.charge.end()
	}
}

// chargedMethods charges the calls of a service whose messages protobuf reads.
func chargedMethods(desc grpc.ServiceDesc) *grpc.ServiceDesc {
	methods := make([]grpc.MethodDesc, len(desc.Methods))
	for i, m := range desc.Methods {
		methods[i] = grpc.MethodDesc{
			MethodName: m.MethodName,
			Handler: func(service any, ctx context.Context, read func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
				held, err := begin(ctx)
				if err != nil {
					return nil, err
				}
				defer held.end()
				return m.Handler(service, ctx, read, interceptor)
			},
		}
	}
	desc.Methods = methods
	return &desc
}

// streamCost is what an open stream of health or reflection holds at most: some
// of the answers of reflection are long, and two may wait.
const streamCost = 256 << 10

// chargeStreams returns an interceptor that charges streams. Those of a service
// that charges itself have what any call has.
func chargeStreams(chargesItself any) grpc.StreamServerInterceptor {
	return func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		held, err := begin(stream.Context())
		if err != nil {
			return err
		}
		defer held.end()
		if service == chargesItself {
			return next(service, stream)
		}
		account := held.account
		if err := account.reserve(stream.Context(), streamCost); err != nil {
			return err
		}
		defer account.add(-streamCost)
		return next(service, stream)
	}
}
