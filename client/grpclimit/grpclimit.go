// Package grpclimit limits calls to gRPC servers by ratelimitd.
//
//	limit, err := grpclimit.New(limiter, grpclimit.Options{
//		Domain:      "api",
//		Descriptors: []grpclimit.Descriptor{grpclimit.By(grpclimit.Method("method"))},
//	})
//	...
//	server := grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/guard"
)

type (
	// Options of the interceptors. [guard.Options] documents the fields; a
	// status is a code, and headers are metadata.
	Options = guard.Options[*Call, codes.Code, Handler]
	// Descriptor is a list of entries whose values come from a call.
	Descriptor = guard.Descriptor[*Call]
	// Part is an entry's key and the source of its value.
	Part = guard.Part[*Call]
	// Verdict is the decision about a call.
	Verdict = guard.Verdict
	// Handler returns the error of a refused call.
	Handler func(c *Call, v Verdict) error
)

// Values of Options.OnMissing and Options.Headers; package guard documents them.
const (
	Empty = guard.Empty
	Omit  = guard.Omit
	Deny  = guard.Deny

	XRateLimit = guard.XRateLimit
	IETF       = guard.IETF
	None       = guard.None
)

// Call is a call to a server.
type Call struct {
	Context context.Context
	// Method is its full name: /package.Service/Method.
	Method string
	// Request is its message; nil for a stream, which is asked about once, when
	// it opens.
	Request any
}

// Limiter has the interceptors.
type Limiter struct {
	guard *guard.Guard[*Call, codes.Code, Handler]
}

// New returns interceptors that ask through c. Its error says which option is
// invalid.
//
// A denial is RESOURCE_EXHAUSTED unless Status is set. It has a google.rpc.RetryInfo with
// the time to wait, unless waiting cannot help.
func New(c *client.Client, o Options) (*Limiter, error) {
	if o.Status == codes.OK {
		o.Status = codes.ResourceExhausted
	}
	if o.Body == "" {
		o.Body = "too many requests"
	}
	if o.OnDenied == nil {
		o.OnDenied = func(_ *Call, v Verdict) error { return denial(o.Status, o.Body, v) }
	}
	if o.OnError == nil {
		o.OnError = noDecision
	}
	g, err := guard.New(c, o)
	if err != nil {
		return nil, fmt.Errorf("grpclimit: %w", err)
	}
	return &Limiter{guard: g}, nil
}

func denial(code codes.Code, message string, v Verdict) error {
	s := status.New(code, message)
	if v.Result != nil && v.Result.RetryAfter > 0 {
		if detailed, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(v.Result.RetryAfter)}); err == nil {
			s = detailed
		}
	}
	return s.Err()
}

func noDecision(_ *Call, v Verdict) error {
	if errors.Is(v.Err, context.Canceled) || errors.Is(v.Err, context.DeadlineExceeded) {
		return status.FromContextError(v.Err).Err()
	}
	return status.Error(codes.Unavailable, "the rate limit is not known")
}

// Unary is a grpc.UnaryServerInterceptor.
func (l *Limiter) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	c := &Call{Context: ctx, Method: info.FullMethod, Request: request}
	v := l.guard.Ask(ctx, c)
	header := l.header(v)
	if len(header) > 0 {
		_ = grpc.SetHeader(ctx, header) // fails only once headers are sent
	}
	if err := l.refusal(c, v); err != nil {
		return nil, err
	}
	var response any
	err := l.count(c, v, func() (err error) {
		response, err = handler(ctx, request)
		return err
	})
	return response, err
}

// Stream is a grpc.StreamServerInterceptor. It asks once, when a stream opens.
func (l *Limiter) Stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	c := &Call{Context: stream.Context(), Method: info.FullMethod}
	v := l.guard.Ask(c.Context, c)
	if header := l.header(v); len(header) > 0 {
		_ = stream.SetHeader(header) // fails only once headers are sent
	}
	if err := l.refusal(c, v); err != nil {
		return err
	}
	return l.count(c, v, func() error { return handler(server, stream) })
}

func (l *Limiter) header(v Verdict) metadata.MD {
	md := metadata.MD{}
	l.guard.SetHeaders(v, func(name, value string) { md.Set(name, value) })
	return md
}

// refusal returns the error of a refused call.
func (l *Limiter) refusal(c *Call, v Verdict) error {
	if refuse, isRefused := l.guard.Refusal(v); isRefused {
		return refuse(c, v)
	}
	return nil
}

// count runs the handler of a call, which may count by its code and holds its slot. If the
// handler panics, the code is Internal.
func (l *Limiter) count(c *Call, v Verdict, handler func() error) (err error) {
	code := codes.Internal
	defer func() { l.guard.Finish(c.Context, v, code) }()
	err = handler()
	code = status.Code(err)
	return err
}

// By returns the descriptor of these parts.
func By(parts ...Part) Descriptor { return guard.By(parts...) }

// InFlight returns the descriptor of these parts that counts calls in flight: each holds a
// slot until its handler has ended, that of a stream until the stream has. holderKey is the
// last key of the rule.
func InFlight(holderKey string, parts ...Part) Descriptor { return guard.InFlight(holderKey, parts...) }

// Constant is an entry that is the same for all calls.
func Constant(key, value string) Part { return guard.Constant[*Call](key, value) }

// Func is an entry whose value a function of the call returns.
func Func(key string, value func(*Call) (string, bool)) Part { return Part{Key: key, Value: value} }

// Header is an entry with the first value of a name in the caller's metadata.
func Header(key, name string) Part {
	name = strings.ToLower(name)
	return Func(key, func(c *Call) (string, bool) {
		values := metadata.ValueFromIncomingContext(c.Context, name)
		if len(values) == 0 {
			return "", false
		}
		return values[0], true
	})
}

// Method is an entry with the full name of the method.
func Method(key string) Part {
	return Func(key, func(c *Call) (string, bool) { return c.Method, true })
}

// ClientAddress is an entry with the IP address that the call came from. It uses
// x-forwarded-for only as far as trusted proxies wrote it.
func ClientAddress(key string, trusted ...netip.Prefix) Part {
	return Func(key, func(c *Call) (string, bool) {
		return guard.ClientAddress(remoteOf(c), forwardedFor(c), trusted)
	})
}

// ClientNetwork is ClientAddress with only the first bits of the address, such as
// 32 and 64: one customer usually has a whole /64 of IPv6.
func ClientNetwork(key string, ipv4Bits, ipv6Bits int, trusted ...netip.Prefix) Part {
	return Func(key, func(c *Call) (string, bool) {
		return guard.ClientNetwork(remoteOf(c), forwardedFor(c), trusted, ipv4Bits, ipv6Bits)
	})
}

func remoteOf(c *Call) string {
	p, ok := peer.FromContext(c.Context)
	if !ok {
		return ""
	}
	return p.Addr.String()
}

func forwardedFor(c *Call) []string {
	return metadata.ValueFromIncomingContext(c.Context, "x-forwarded-for")
}
