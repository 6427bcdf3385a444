package authapi

import (
	"net/http"

	"github.com/ratelimitd/ratelimitd/internal/config/forwardauth"
	"github.com/ratelimitd/ratelimitd/internal/decide"
)

// Describe fills an empty call with what an endpoint asks about a request, whose
// RemoteAddr asks. It returns false if the request is denied because a value is
// missing or not clear.
func Describe(c *decide.Call, auth *forwardauth.File, endpoint *forwardauth.Endpoint, r *http.Request) bool {
	return readAuth(c, endpoint, newAuthRequest(auth, endpoint, r))
}
