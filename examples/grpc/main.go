// A gRPC server whose callers are limited by ratelimitd, by their x-user
// metadata and the method that they call. The service is gRPC's own health
// check; limits are in limits.yaml. With -call it is the client, which waits as
// long as a denial says and tries again.
//
//	ratelimitd serve --limits-path examples/grpc/limits.yaml &
//	go run ./examples/grpc &
//	go run ./examples/grpc -call 127.0.0.1:8000
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/grpclimit"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8000", "address to serve at")
	daemon := flag.String("ratelimitd", "localhost:8081", "the daemon's gRPC address")
	target := flag.String("call", "", "call the server at this address, four times")
	flag.Parse()
	var err error
	if *target != "" {
		err = call(*target)
	} else {
		err = serve(*listen, *daemon)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func serve(listen, daemon string) error {
	limiter, err := client.New(daemon, client.OnFailure(client.FailAllow()), client.Logger(slog.Default()))
	if err != nil {
		return err
	}
	defer limiter.Close()
	limit, err := grpclimit.New(limiter, grpclimit.Options{
		Domain: "calls",
		Descriptors: []grpclimit.Descriptor{
			grpclimit.By(grpclimit.Header("user", "x-user"), grpclimit.Method("method")),
		},
	})
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
	healthpb.RegisterHealthServer(server, health.NewServer())

	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	go func() {
		<-ctx.Done()
		server.GracefulStop()
	}()
	log.Printf("serving at %s", listener.Addr())
	return server.Serve(listener)
}

func call(target string) error {
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-user", "alice")
	for served := 0; served < 4; {
		var headers metadata.MD
		_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Header(&headers))
		switch wait := retryDelay(err); {
		case err == nil:
			served++
			fmt.Println("served;", headers.Get("x-ratelimit-remaining"), "left")
		case wait > 0:
			fmt.Println("denied; waiting")
			time.Sleep(wait)
		default:
			return err
		}
	}
	return nil
}

// retryDelay returns how long a denial says to wait; 0 if it says nothing.
func retryDelay(err error) time.Duration {
	s := status.Convert(err)
	if s.Code() != codes.ResourceExhausted {
		return 0
	}
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}
