// A net/http server whose callers are limited by ratelimitd: each user by a
// limit on items, and failed logins by the address that they come from. Its
// limits are in limits.yaml.
//
//	ratelimitd serve --limits-path examples/nethttp/limits.yaml &
//	go run ./examples/nethttp &
//	curl -i -H 'X-User: alice' localhost:8000/items/7
//	curl -i -d password=guess localhost:8000/login
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/httplimit"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8000", "address to serve at")
	daemon := flag.String("ratelimitd", "localhost:8081", "the daemon's gRPC address")
	flag.Parse()
	if err := run(*listen, *daemon); err != nil {
		log.Fatal(err)
	}
}

func run(listen, daemon string) error {
	limiter, err := client.New(daemon, client.OnFailure(client.FailAllow()), client.Logger(slog.Default()))
	if err != nil {
		return err
	}
	defer limiter.Close()
	handler, err := routes(limiter)
	if err != nil {
		return err
	}

	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		<-ctx.Done()
		ended <- server.Shutdown(context.Background())
	}()
	log.Printf("serving at %s", listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-ended // after the requests in flight
}

func routes(limiter *client.Client) (http.Handler, error) {
	perUser, err := httplimit.New(limiter, httplimit.Options{
		Domain: "shop",
		Descriptors: []httplimit.Descriptor{
			httplimit.By(httplimit.Header("user", "X-User"), httplimit.Route("route")),
		},
	})
	if err != nil {
		return nil, err
	}
	// Only failed logins count. A proxy on this machine is trusted to say who
	// the client is.
	failedLogins, err := httplimit.New(limiter, httplimit.Options{
		Domain: "shop",
		Descriptors: []httplimit.Descriptor{
			httplimit.By(httplimit.ClientAddress("failed_login", netip.MustParsePrefix("127.0.0.0/8"))),
		},
		CountIf: func(status int) bool { return status == http.StatusUnauthorized },
		Body:    "too many failed logins",
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", perUser(http.HandlerFunc(item)))
	mux.Handle("POST /login", failedLogins(http.HandlerFunc(login)))
	return mux, nil
}

func item(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "item %s\n", r.PathValue("id"))
}

func login(w http.ResponseWriter, r *http.Request) {
	if r.PostFormValue("password") != "open sesame" {
		http.Error(w, "wrong password", http.StatusUnauthorized)
		return
	}
	fmt.Fprintln(w, "welcome")
}
