package takeapi

import (
	"context"
	_ "embed" // the document
	"net/http"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
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

// Routes returns the handlers by method and path.
func (a *API) Routes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"POST /v1/take":      a.postTake,
		"POST /v1/give-back": a.postGiveBack,
		"POST /v1/settle":    a.postSettle,
		"POST /v1/release":   a.postRelease,
	}
}

// postTake is Take. A denial is a 429 with retry-after, in whole seconds.
func (a *API) postTake(w http.ResponseWriter, r *http.Request) {
	began := a.Decider.Clock()
	var request ratelimitv1.TakeRequest
	if !a.ReadBody(w, r, &request, endpoint.BoundsOfRequest(a.Bounds)) {
		return
	}
	response, err := a.takeMessage(r.Context(), &request, began)
	if err != nil {
		endpoint.WriteStatus(w, err)
		return
	}
	if retry := response.GetRetryAfter(); retry != nil {
		w.Header().Set(endpoint.RetryAfter, strconv.FormatInt(endpoint.Seconds(retry.AsDuration()), 10))
	}
	endpoint.WriteMessage(w, response, !response.GetAllowed())
}

// postGiveBack is GiveBack.
func (a *API) postGiveBack(w http.ResponseWriter, r *http.Request) {
	answerBody(a, w, r, boundsOfGiveBack(a.Bounds), a.newGiveBack, a.giveBackTake, new(ratelimitv1.GiveBackRequest), new(ratelimitv1.GiveBackResponse))
}

// postSettle is Settle. What is not known is no error: to ask again would not help.
func (a *API) postSettle(w http.ResponseWriter, r *http.Request) {
	answerBody(a, w, r, endpoint.BoundsOfRequest(a.Bounds), a.newSettle, a.settle, new(ratelimitv1.SettleRequest), new(ratelimitv1.SettleResponse))
}

// postRelease is Release.
func (a *API) postRelease(w http.ResponseWriter, r *http.Request) {
	answerBody(a, w, r, endpoint.BoundsOfRequest(a.Bounds), a.newRelease, a.answerRelease, new(ratelimitv1.ReleaseRequest), new(ratelimitv1.ReleaseResponse))
}

// wireCall is a call that is read and written as bytes.
type wireCall interface {
	ReadWire(message string) error
	AppendWire(dst []byte) []byte
	Release()
}

// answerBody answers a body that is the request in JSON, as answer does its bytes. The call
// begins once the body is read.
func answerBody[C wireCall](a *API, w http.ResponseWriter, r *http.Request, bounds endpoint.JSONBounds, newCall func() C, answer func(context.Context, C) error, request, response proto.Message) {
	if !a.ReadBody(w, r, request, bounds) {
		return
	}
	if err := answerMessage(r.Context(), newCall(), answer, request, response); err != nil {
		endpoint.WriteStatus(w, err)
		return
	}
	endpoint.WriteMessage(w, response, false)
}

// answerMessage reads a message into a call, which it releases, and has it answered.
func answerMessage[C wireCall](ctx context.Context, c C, answer func(context.Context, C) error, request, response proto.Message) error {
	defer c.Release()
	message, err := proto.Marshal(request)
	if err == nil {
		err = c.ReadWire(string(message))
	}
	if err != nil {
		return endpoint.Invalid("the request: %v", err)
	}
	if err := answer(ctx, c); err != nil {
		return err
	}
	if err := proto.Unmarshal(c.AppendWire(nil), response); err != nil {
		return status.Errorf(codes.Internal, "the response: %v", err)
	}
	return nil
}
