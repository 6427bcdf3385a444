package server

import (
	_ "embed" // the document
	"net/http"
	"strconv"

	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// openAPI describes what is below.
//
//go:embed openapi.yaml
var openAPI []byte

func getOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openAPI)
}

// routes are what openAPI describes.
func (a *api) routes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"POST /v1/take":      a.postTake,
		"POST /v1/give-back": a.postGiveBack,
	}
}

// postTake is Take. A denial is a 429 with retry-after, in whole seconds.
func (a *api) postTake(w http.ResponseWriter, r *http.Request) {
	var request ratelimitv1.TakeRequest
	if !a.readBody(w, r, &request, boundsOfTake(a.bounds)) {
		return
	}
	response, err := a.takeMessage(r.Context(), &request)
	if err != nil {
		writeStatus(w, err)
		return
	}
	if retry := response.GetRetryAfter(); retry != nil {
		w.Header().Set(retryAfter, strconv.FormatInt(seconds(retry.AsDuration()), 10))
	}
	writeMessage(w, response, !response.GetAllowed())
}

// postGiveBack is GiveBack.
func (a *api) postGiveBack(w http.ResponseWriter, r *http.Request) {
	var request ratelimitv1.GiveBackRequest
	if !a.readBody(w, r, &request, boundsOfGiveBack(a.bounds)) {
		return
	}
	response, err := a.giveBackMessage(r.Context(), &request)
	if err != nil {
		writeStatus(w, err)
		return
	}
	writeMessage(w, response, false)
}
