package envoyrls

import (
	"context"
	"net/http"
	"sync"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	"github.com/ratelimitd/ratelimitd/internal/server/overload"
)

// API serves envoy.service.ratelimit.v3.RateLimitService.
type API struct {
	*endpoint.Endpoint
	// metadata says whether dynamic_metadata repeats the request.
	metadata bool
	calls    sync.Pool
}

// New returns the API on an endpoint of its own. metadata says whether dynamic_metadata
// repeats the request.
func New(d *endpoint.Endpoint, metadata bool) *API {
	e := &API{Endpoint: d, metadata: metadata}
	d.AnswerBound = e.bound
	e.calls.New = func() any { return &envoyCall{Call: d.Decider.NewCall(), api: e} }
	return e
}

// bound returns no less than the bytes of a response to a matched call.
func (e *API) bound(c *decide.Call) int {
	n := endpoint.StatusesBound(c) + endpoint.PoliciesBound(c, e.Headers)
	if e.metadata {
		n += metadataBound(c)
	}
	return n
}

// envoyCall is a call that is read and written as in Envoy's RPC.
type envoyCall struct {
	*decide.Call
	overload.Charge
	api *API
}

// Call returns an empty call that begins now. Release ends its use.
func (e *API) Call() *envoyCall {
	c := e.calls.Get().(*envoyCall)
	c.Began = e.Decider.Clock()
	return c
}

// Release ends the use of a call that Call returned.
func (c *envoyCall) Release() {
	c.Charge = overload.Charge{}
	if c.Reset() {
		c.api.calls.Put(c)
	}
}

// Register adds the service to g, which must use endpoint.Codec.
func (e *API) Register(g *grpc.Server) {
	answer := func(ctx context.Context, c *envoyCall) error { return e.Answer(ctx, c.Call, nil) }
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: rlsv3.RateLimitService_ServiceDesc.ServiceName,
		HandlerType: (*rlsv3.RateLimitServiceServer)(nil),
		Methods: []grpc.MethodDesc{
			endpoint.Unary(e.Endpoint, e, "ShouldRateLimit", rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, e.Call, answer),
		},
		Metadata: rlsv3.RateLimitService_ServiceDesc.Metadata,
	}, e)
}

// ShouldRateLimit decides all descriptors of a request as one group.
//
// It fails with INVALID_ARGUMENT for an invalid request, with PERMISSION_DENIED for a
// refund if refunds are not allowed, and with UNAVAILABLE when the store does not
// answer. A caller that disconnects or whose deadline passes first gets CANCELED or
// DEADLINE_EXCEEDED. A denial is not a failure.
func (e *API) ShouldRateLimit(ctx context.Context, r *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	return e.answerMessage(ctx, r, e.Decider.Clock())
}

// answerMessage is ShouldRateLimit for a request that began at began.
func (e *API) answerMessage(ctx context.Context, r *rlsv3.RateLimitRequest, began time.Duration) (*rlsv3.RateLimitResponse, error) {
	c := e.Call()
	defer c.Release()
	c.Began = began
	in, err := proto.Marshal(r)
	if err == nil {
		err = c.ReadWire(string(in))
	}
	if err != nil {
		return nil, status.Errorf(codes.Internal, "the request: %v", err)
	}
	if err := e.Answer(ctx, c.Call, nil); err != nil {
		return nil, err
	}
	response := new(rlsv3.RateLimitResponse)
	if err := proto.Unmarshal(c.AppendWire(nil), response); err != nil {
		return nil, status.Errorf(codes.Internal, "the response: %v", err)
	}
	return response, nil
}

// PostJSON is ShouldRateLimit. A denial is a 429.
func (e *API) PostJSON(w http.ResponseWriter, r *http.Request) {
	began := e.Decider.Clock()
	if !e.ReadBody(w, r, endpoint.BoundsOfRequest(e.Bounds)) {
		return
	}
	var request rlsv3.RateLimitRequest
	if err := e.JSON().NewDecoder(r.Body).Decode(&request); err != nil {
		endpoint.WriteStatus(w, endpoint.Invalid("%v", err))
		return
	}
	response, err := e.answerMessage(r.Context(), &request, began)
	if err != nil {
		endpoint.WriteStatus(w, err)
		return
	}
	for _, h := range response.GetResponseHeadersToAdd() {
		w.Header().Set(h.GetKey(), h.GetValue())
	}
	w.Header().Set("Content-Type", "application/json")
	if response.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	// A client that no longer reads is not a failure.
	_ = e.JSON().NewEncoder(w).Encode(response)
}

// degradedMetadata is the dynamic_metadata of a degraded answer.
var degradedMetadata = func() []byte {
	out, err := proto.Marshal(&structpb.Struct{Fields: map[string]*structpb.Value{"degraded": structpb.NewBoolValue(true)}})
	if err != nil {
		panic(err) // the message is above
	}
	return out
}()
