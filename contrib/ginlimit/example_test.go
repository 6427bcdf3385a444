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

func ExampleNew_cost() {
	limit, err := ginlimit.New(limiter, ginlimit.Options{
		Domain:      "uploads",
		Descriptors: []ginlimit.Descriptor{ginlimit.By(ginlimit.Header("user", "X-User"))},
		// An upload costs its size in KiB, at least 1.
		Cost: func(c *gin.Context) uint64 { return uint64(max(c.Request.ContentLength, 0))>>10 + 1 },
	})
	if err != nil {
		log.Fatal(err)
	}
	gin.New().POST("/files", limit, func(c *gin.Context) { c.String(http.StatusOK, "stored\n") })
}

func ExampleNew_countIf() {
	limit, err := ginlimit.New(limiter, ginlimit.Options{
		Domain:      "login",
		Descriptors: []ginlimit.Descriptor{ginlimit.By(ginlimit.ClientAddress("ip"))},
		// Only failed logins count.
		CountIf: func(status int) bool { return status == http.StatusUnauthorized },
	})
	if err != nil {
		log.Fatal(err)
	}
	gin.New().POST("/login", limit, func(c *gin.Context) { c.Status(http.StatusUnauthorized) })
}

func ExampleFunc() {
	// A middleware before this one has called c.Set("tenant", ...).
	tenant := ginlimit.Func("tenant", func(c *gin.Context) (string, bool) {
		tenant := c.GetString("tenant")
		return tenant, tenant != ""
	})
	limit, err := ginlimit.New(limiter, ginlimit.Options{
		Domain:      "api",
		Descriptors: []ginlimit.Descriptor{ginlimit.By(tenant)},
		OnMissing:   ginlimit.Deny,
	})
	if err != nil {
		log.Fatal(err)
	}
	gin.New().GET("/reports", limit, func(c *gin.Context) { c.String(http.StatusOK, "reports\n") })
}
