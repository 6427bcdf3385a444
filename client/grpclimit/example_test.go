package grpclimit_test

import (
	"context"
	"log"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/grpclimit"
)

// limiter is made as in the first example.
var limiter *client.Client

func Example() {
	limiter, err := client.New("ratelimitd:8081", client.OnFailure(client.FailAllow()))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	limit, err := grpclimit.New(limiter, grpclimit.Options{
		Domain:      "api",
		Descriptors: []grpclimit.Descriptor{grpclimit.By(grpclimit.Header("user", "x-user"), grpclimit.Method("method"))},
	})
	if err != nil {
		log.Fatal(err)
	}
	grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
}

func ExampleNew() {
	limit, err := grpclimit.New(limiter, grpclimit.Options{
		Domain: "api",
		// Each address has a limit, and so has each user.
		Descriptors: []grpclimit.Descriptor{
			grpclimit.By(grpclimit.ClientAddress("ip")),
			grpclimit.By(grpclimit.Header("user", "x-user")),
		},
		OnMissing: grpclimit.Omit, // calls without x-user are limited by their address only
		Skip:      func(c *grpclimit.Call) bool { return c.Method == "/grpc.health.v1.Health/Check" },
		// A failure of the server does not count.
		CountIf: func(code codes.Code) bool { return code != codes.Unavailable },
		// While ratelimitd is away, this process limits by itself.
		OnFailure: client.FailLocal(client.Limit{Algorithm: client.TokenBucket, Requests: 10, Period: time.Second}),
	})
	if err != nil {
		log.Fatal(err)
	}
	grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
}

// tenantKey is the key of a context's tenant.
type tenantKey struct{}

func tenantOf(ctx context.Context) (string, bool) {
	tenant, ok := ctx.Value(tenantKey{}).(string)
	return tenant, ok
}

func ExampleFunc() {
	// An interceptor before this one has put the tenant into the call's context.
	tenant := grpclimit.Func("tenant", func(c *grpclimit.Call) (string, bool) { return tenantOf(c.Context) })
	limit, err := grpclimit.New(limiter, grpclimit.Options{
		Domain:      "api",
		Descriptors: []grpclimit.Descriptor{grpclimit.By(tenant)},
		OnMissing:   grpclimit.Deny,
	})
	if err != nil {
		log.Fatal(err)
	}
	grpc.NewServer(grpc.UnaryInterceptor(limit.Unary))
}
