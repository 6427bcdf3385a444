// A gin server whose callers are limited by ratelimitd: all of them together
// by a limit of 1000 a minute on /news, each user by a limit on items, and failed
// logins by the address that they come from. Its limits are in limits.yaml.
//
//	ratelimitd serve --limits-path examples/gin/limits.yaml &
//	go run -C examples/gin . &
//	curl -i localhost:8000/news
//	curl -i -H 'X-User: alice' localhost:8000/items/7
//	curl -i -d password=guess localhost:8000/login
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/contrib/ginlimit"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8000", "address to serve at")
	daemon := flag.String("ratelimitd", "localhost:8081", "the daemon's gRPC address")
	timeout := flag.Duration("timeout", 50*time.Millisecond, "how long to wait for the daemon; then requests pass")
	flag.Parse()
	if err := run(*listen, *daemon, *timeout); err != nil {
		log.Fatal(err)
	}
}

func run(listen, daemon string, timeout time.Duration) error {
	limiter, err := client.New(daemon, client.Timeout(timeout), client.OnFailure(client.FailAllow()), client.Logger(slog.Default()))
	if err != nil {
		return err
	}
	defer limiter.Close()
	gin.SetMode(gin.ReleaseMode)
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
	together, err := ginlimit.New(limiter, ginlimit.Options{
		Domain:      "shop",
		Descriptors: []ginlimit.Descriptor{ginlimit.By(ginlimit.Constant("service", "news"))},
	})
	if err != nil {
		return nil, err
	}
	perUser, err := ginlimit.New(limiter, ginlimit.Options{
		Domain: "shop",
		Descriptors: []ginlimit.Descriptor{
			ginlimit.By(ginlimit.Header("user", "X-User"), ginlimit.Route("route")),
		},
		OnDenied: func(c *gin.Context, _ ginlimit.Verdict) {
			c.JSON(http.StatusTooManyRequests, gin.H{"error": "slow down"})
		},
	})
	if err != nil {
		return nil, err
	}
	// Only failed logins count. A proxy on this machine is trusted to say who
	// the client is.
	failedLogins, err := ginlimit.New(limiter, ginlimit.Options{
		Domain: "shop",
		Descriptors: []ginlimit.Descriptor{
			ginlimit.By(ginlimit.ClientAddress("failed_login", netip.MustParsePrefix("127.0.0.0/8"))),
		},
		CountIf: func(status int) bool { return status == http.StatusUnauthorized },
		Body:    "too many failed logins",
	})
	if err != nil {
		return nil, err
	}
	router := gin.New()
	router.Use(gin.Recovery())
	router.GET("/news", together, news)
	router.GET("/items/:id", perUser, item)
	router.POST("/login", failedLogins, login)
	return router, nil
}

func news(c *gin.Context) { c.String(http.StatusOK, "no news\n") }

func item(c *gin.Context) { c.String(http.StatusOK, "item %s\n", c.Param("id")) }

func login(c *gin.Context) {
	if c.PostForm("password") != "open sesame" {
		c.String(http.StatusUnauthorized, "wrong password\n")
		return
	}
	c.String(http.StatusOK, "welcome\n")
}
