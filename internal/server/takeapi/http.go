package takeapi

import (
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"

	_ "embed"
	"net/http"
	"strconv"

	// the document

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
	var request ratelimitv1.GiveBackRequest
	if !a.ReadBody(w, r, &request, boundsOfGiveBack(a.Bounds)) {
		return
	}
	response, err := a.giveBackMessage(r.Context(), &request)
	if err != nil {
		endpoint.WriteStatus(w, err)
		return
	}
	endpoint.WriteMessage(w, response, false)
}

// postSettle is Settle. What is not known is no error: to ask again would not help.
func (a *API) postSettle(w http.ResponseWriter, r *http.Request) {
	var request ratelimitv1.SettleRequest
	if !a.ReadBody(w, r, &request, endpoint.BoundsOfRequest(a.Bounds)) {
		return
	}
	response, err := a.settleMessage(r.Context(), &request)
	if err != nil {
		endpoint.WriteStatus(w, err)
		return
	}
	endpoint.WriteMessage(w, response, false)
}

// postRelease is Release.
func (a *API) postRelease(w http.ResponseWriter, r *http.Request) {
	var request ratelimitv1.ReleaseRequest
	if !a.ReadBody(w, r, &request, endpoint.BoundsOfRequest(a.Bounds)) {
		return
	}
	response, err := a.releaseMessage(r.Context(), &request)
	if err != nil {
		endpoint.WriteStatus(w, err)
		return
	}
	endpoint.WriteMessage(w, response, false)
}
