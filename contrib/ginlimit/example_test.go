package ginlimit_test

import (
	"log"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/contrib/ginlimit"
)

// limiter is made as in the first example.
var limiter *client.Client

func Example() {
	limiter, err := client.New("ratelimitd:8081", client.OnFailure(client.FailAllow()))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	limit, err := ginlimit.New(limiter, ginlimit.Options{
		Domain:      "api",
		Descriptors: []ginlimit.Descriptor{ginlimit.By(ginlimit.Header("user", "X-User"))},
	})
	if err != nil {
		log.Fatal(err)
	}
	router := gin.New()
	router.Use(gin.Recovery(), limit)
}

func ExampleNew() {
	limit, err := ginlimit.New(limiter, ginlimit.Options{
		Domain: "api",
		// Each address has a limit, and so has each user on each route.
		Descriptors: []ginlimit.Descriptor{
			ginlimit.By(ginlimit.ClientAddress("ip")),
			ginlimit.By(ginlimit.Header("user", "X-User"), ginlimit.Route("route")),
		},
		OnMissing: ginlimit.Omit, // requests without X-User are limited by their address only
		OnDenied: func(c *gin.Context, _ ginlimit.Verdict) {
			c.JSON(http.StatusTooManyRequests, gin.H{"error": "slow down"})
		},
		// While ratelimitd is away, this process limits by itself.
		OnFailure: client.FailLocal(client.Limit{Algorithm: client.TokenBucket, Requests: 10, Period: time.Second}),
	})
	if err != nil {
		log.Fatal(err)
	}
	router := gin.New()
	router.Use(gin.Recovery(), limit)
}
