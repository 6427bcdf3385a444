package grpclimit_test

import (
	"log"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/grpclimit"
)

func Example() {
	limiter, err := client.New("ratelimitd:8081", client.OnFailure(client.FailAllow()))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	limit, err := grpclimit.New(limiter, grpclimit.Options{
		Domain: "api",
		Descriptors: []grpclimit.Descriptor{
			grpclimit.By(grpclimit.Header("user", "x-user"), grpclimit.Method("method")),
		},
		// What a caller could not help does not count.
		CountIf: func(code codes.Code) bool { return code != codes.Unavailable },
	})
	if err != nil {
		log.Fatal(err)
	}
	grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
}
