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

// apiRoutes are what openAPI describes.
func (s *Server) apiRoutes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"POST /v1/take":      s.postTake,
		"POST /v1/give-back": s.postGiveBack,
	}
}

// postTake is Take. A denial is a 429 with retry-after, in whole seconds.
func (s *Server) postTake(w http.ResponseWriter, r *http.Request) {
	a := s.apiHTTP
	var request ratelimitv1.TakeRequest
	if !s.readBody(w, r, &request, a.door, a.bounds.ofTake()) {
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
func (s *Server) postGiveBack(w http.ResponseWriter, r *http.Request) {
	var request ratelimitv1.GiveBackRequest
	a := s.apiHTTP
	if !s.readBody(w, r, &request, a.door, a.bounds.ofGiveBack()) {
		return
	}
	response, err := a.giveBackMessage(r.Context(), &request)
	if err != nil {
		writeStatus(w, err)
		return
	}
	writeMessage(w, response, false)
}
