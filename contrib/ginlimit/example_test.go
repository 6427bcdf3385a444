package ginlimit_test

import (
	"log"

	"github.com/gin-gonic/gin"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/contrib/ginlimit"
)

func Example() {
	limiter, err := client.New("ratelimitd:8081", client.OnFailure(client.FailAllow()))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	limit, err := ginlimit.New(limiter, ginlimit.Options{
		Domain: "api",
		Descriptors: []ginlimit.Descriptor{
			ginlimit.By(ginlimit.ClientAddress("ip")),
			ginlimit.By(ginlimit.Header("user", "X-User"), ginlimit.Route("route")),
		},
		OnMissing: ginlimit.Omit,
	})
	if err != nil {
		log.Fatal(err)
	}
	router := gin.New()
	router.Use(gin.Recovery(), limit)
}
