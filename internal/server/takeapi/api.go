package takeapi

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	"github.com/ratelimitd/ratelimitd/internal/server/overload"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// API serves the daemon's own API, ratelimit.v1.RateLimitService.
type API struct {
	*endpoint.Endpoint
	// Stopping ends when the server stops, and ends streams with it.
	Stopping context.Context
	// Age and Grace are those of connections; 0 means no limit.
	Age, Grace time.Duration
	takes      sync.Pool
}

// New returns the API on an endpoint of its own.
func New(d *endpoint.Endpoint) *API {
	d.AnswerBound = endpoint.StatusesBound
	a := &API{Endpoint: d}
	a.takes.New = func() any { return &take{takeCall: takeCall{d.Decider.NewCall()}, api: a} }
	return a
}

// takeCall is a call that is read and written as in the daemon's own API.
type takeCall struct{ *decide.Call }

// take is a TakeRequest.
type take struct {
	takeCall
	overload.Charge
	api *API
}

// newTake returns an empty request that begins now. Release ends its use.
func (a *API) newTake() *take {
	t := a.takes.Get().(*take)
	t.Began = a.Decider.Clock()
	return t
}

// Release ends the use of a request that newTake returned.
func (t *take) Release() {
	t.Charge = overload.Charge{}
	if t.Reset() {
		t.api.takes.Put(t)
	}
}

func (t *take) ReadWire(message string) error {
	t.Size = len(message)
	return t.unmarshalTake(message)
}

func (t *take) AppendWire(dst []byte) []byte { return t.appendTakeResponse(dst) }

// answerTake decides one request.
func (a *API) answerTake(ctx context.Context, t *take) error { return a.Answer(ctx, t.Call, nil) }

// oneCall is a request that is neither a take nor a give-back.
type oneCall struct {
	takeCall
	overload.Charge
	read   func(takeCall, string) error
	append func(takeCall, []byte) []byte
}

func (a *API) newCall(read func(takeCall, string) error, append func(takeCall, []byte) []byte) *oneCall {
	return &oneCall{takeCall: takeCall{a.Decider.Call(a.Decider.Clock())}, read: read, append: append}
}

func (o *oneCall) ReadWire(message string) error {
	o.Size = len(message)
	return o.read(o.takeCall, message)
}

func (o *oneCall) AppendWire(dst []byte) []byte { return o.append(o.takeCall, dst) }

// Release ends the use of a request that newCall returned.
func (o *oneCall) Release() { o.Call.Release() }

func (a *API) answerCall(ctx context.Context, o *oneCall) error { return a.Answer(ctx, o.Call, nil) }

// CallOf reads a request into a call of the decider, like a take. The caller releases
// it.
func CallOf(d *decide.Decider, r *ratelimitv1.TakeRequest) (*decide.Call, error) {
	c := d.Call(d.Clock())
	message, err := proto.Marshal(r)
	if err == nil {
		err = takeCall{c}.unmarshalTake(string(message))
	}
	if err != nil {
		c.Release()
		return nil, status.Errorf(codes.Internal, "the request: %v", err)
	}
	return c, nil
}

// takeMany decides several requests, each by itself.
func (a *API) takeMany(ctx context.Context, t *takes) error {
	if t.err == nil && len(t.items) == 0 {
		t.err = endpoint.Invalid("takes is empty; a request has at least one")
	}
	if t.err == nil {
		var bytes int64
		if bytes, t.err = t.chargeHits(ctx); t.err == nil {
			defer overload.Of(ctx).Add(-bytes)
		}
	}
	if t.err == nil && t.answerBound() > endpoint.MaxAnswer {
		t.err = endpoint.ErrAnswerTooLong
	}
	if t.err != nil {
		a.Requests.Failed(status.Code(t.err))
		return t.err
	}
	span := tracing.SpanOf(ctx)
	t.answerAll(a.withCredentials(ctx), span)
	if span != nil {
		t.describe(span)
	}
	return nil
}

// withCredentials returns a context for several requests of a caller, so that its
// credentials are read only once.
func (a *API) withCredentials(ctx context.Context) context.Context {
	if a.Callers == nil {
		return ctx
	}
	return endpoint.WithCredentials(ctx, endpoint.GRPCCredentials(ctx))
}

// Register adds the service to g, which must use endpoint.Codec.
func (a *API) Register(g *grpc.Server) {
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: ratelimitv1.RateLimitService_ServiceDesc.ServiceName,
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			endpoint.Unary(a.Endpoint, a, "Take", ratelimitv1.RateLimitService_Take_FullMethodName, a.newTake, a.answerTake),
			endpoint.Unary(a.Endpoint, a, "TakeMany", ratelimitv1.RateLimitService_TakeMany_FullMethodName,
				func() *takes { return &takes{api: a} }, a.takeMany),
			endpoint.Unary(a.Endpoint, a, "GiveBack", ratelimitv1.RateLimitService_GiveBack_FullMethodName, a.newGiveBack, a.giveBackTake),
			endpoint.Unary(a.Endpoint, a, "Settle", ratelimitv1.RateLimitService_Settle_FullMethodName, a.newSettle, a.answerCall),
			endpoint.Unary(a.Endpoint, a, "Release", ratelimitv1.RateLimitService_Release_FullMethodName, a.newRelease, a.answerCall),
		},
		Streams: []grpc.StreamDesc{{
			StreamName:    "TakeStream",
			Handler:       func(_ any, stream grpc.ServerStream) error { return a.takeStream(stream) },
			ServerStreams: true,
			ClientStreams: true,
		}},
		Metadata: ratelimitv1.RateLimitService_ServiceDesc.Metadata,
	}, a)
}
