package httplimit_test

import (
	"log"
	"net/http"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/httplimit"
)

func Example() {
	limiter, err := client.New("ratelimitd:8081", client.OnFailure(client.FailAllow()))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	limit, err := httplimit.New(limiter, httplimit.Options{
		Domain: "api",
		Descriptors: []httplimit.Descriptor{
			httplimit.By(httplimit.ClientAddress("ip")),
			httplimit.By(httplimit.Header("user", "X-User"), httplimit.Route("route")),
		},
		OnMissing: httplimit.Omit,
	})
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("GET /items/{id}", limit(http.NotFoundHandler()))
}
