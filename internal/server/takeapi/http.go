package takeapi

import (
	"context"
	_ "embed" // the document
	"net/http"
	"strconv"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	gateway "github.com/ratelimitd/ratelimitd/internal/server/gateway/ratelimit/v1"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// openAPI describes Routes.
//
//go:embed openapi.yaml
var openAPI []byte

// GetOpenAPI serves the description of Routes.
func GetOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openAPI)
}

// Routes returns the handlers by method and path. A body is bounded before the generated
// handlers read it.
func (a *API) Routes() map[string]http.HandlerFunc {
	mux := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, a.JSON()),
		runtime.WithIncomingHeaderMatcher(endpoint.NoHeaders),
		runtime.WithForwardResponseOption(writeDenial),
		runtime.WithErrorHandler(func(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, _ *http.Request, err error) {
			endpoint.WriteStatus(w, err)
		}),
	)
	// Its error is always nil.
	_ = gateway.RegisterRateLimitServiceHandlerServer(context.Background(), mux, messages{api: a})
	within := func(bounds endpoint.JSONBounds) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if a.ReadBody(w, r, bounds) {
				mux.ServeHTTP(endpoint.IgnoringErrors{ResponseWriter: w}, r)
			}
		}
	}
	one := within(endpoint.BoundsOfRequest(a.Bounds))
	return map[string]http.HandlerFunc{
		"POST /v1/take":      one,
		"POST /v1/give-back": within(boundsOfGiveBack(a.Bounds)),
		"POST /v1/settle":    one,
		"POST /v1/release":   one,
	}
}

// writeDenial makes the answer to a denied take a 429 with retry-after, in whole seconds.
func writeDenial(_ context.Context, w http.ResponseWriter, m proto.Message) error {
	response, ok := m.(*ratelimitv1.TakeResponse)
	if !ok || response.GetAllowed() {
		return nil
	}
	if retry := response.GetRetryAfter(); retry != nil {
		w.Header().Set(endpoint.RetryAfter, strconv.FormatInt(endpoint.Seconds(retry.AsDuration()), 10))
	}
	w.WriteHeader(http.StatusTooManyRequests)
	return nil
}

// messages is the service with protobuf's messages.
type messages struct {
	ratelimitv1.UnimplementedRateLimitServiceServer
	api *API
}

// Take implements ratelimitv1.RateLimitServiceServer.
func (m messages) Take(ctx context.Context, r *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error) {
	return answerMessage(ctx, m.api.newTake(), m.api.answerTake, r, new(ratelimitv1.TakeResponse))
}

// GiveBack implements ratelimitv1.RateLimitServiceServer.
func (m messages) GiveBack(ctx context.Context, r *ratelimitv1.GiveBackRequest) (*ratelimitv1.GiveBackResponse, error) {
	return answerMessage(ctx, m.api.newGiveBack(), m.api.giveBackTake, r, new(ratelimitv1.GiveBackResponse))
}

// Settle implements ratelimitv1.RateLimitServiceServer. An unknown ID is no error: to ask
// again would not help.
func (m messages) Settle(ctx context.Context, r *ratelimitv1.SettleRequest) (*ratelimitv1.SettleResponse, error) {
	return answerMessage(ctx, m.api.newSettle(), m.api.answerCall, r, new(ratelimitv1.SettleResponse))
}

// Release implements ratelimitv1.RateLimitServiceServer.
func (m messages) Release(ctx context.Context, r *ratelimitv1.ReleaseRequest) (*ratelimitv1.ReleaseResponse, error) {
	return answerMessage(ctx, m.api.newRelease(), m.api.answerCall, r, new(ratelimitv1.ReleaseResponse))
}

// wireCall is a call that is read and written as bytes.
type wireCall interface {
	ReadWire(message string) error
	AppendWire(dst []byte) []byte
	Release()
}

// answerMessage reads a message into a call, which it releases, and answers it.
func answerMessage[C wireCall, M proto.Message](ctx context.Context, c C, answer func(context.Context, C) error, request proto.Message, response M) (M, error) {
	defer c.Release()
	message, err := proto.Marshal(request)
	if err == nil {
		err = c.ReadWire(string(message))
	}
	if err != nil {
		return response, endpoint.Invalid("the request: %v", err)
	}
	// The generated handler has put values of its own into the context.
	if err := answer(tracing.OnTop(ctx), c); err != nil {
		return response, err
	}
	if err := proto.Unmarshal(c.AppendWire(nil), response); err != nil {
		return response, status.Errorf(codes.Internal, "the response: %v", err)
	}
	return response, nil
}
