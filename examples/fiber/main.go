// A fiber server whose callers are limited by ratelimitd: each user by a limit
// on items, and failed logins by the address that they come from. Its limits are
// in limits.yaml.
//
//	ratelimitd serve --limits-path examples/fiber/limits.yaml &
//	go run -C examples/fiber . &
//	curl -i -H 'X-User: alice' localhost:8000/items/7
//	curl -i -d password=guess localhost:8000/login
package main

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/contrib/fiberlimit"
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
	app, err := routes(limiter)
	if err != nil {
		return err
	}

	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	log.Printf("serving at %s", listener.Addr())
	return app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true, GracefulContext: ctx})
}

func routes(limiter *client.Client) (*fiber.App, error) {
	perUser, err := fiberlimit.New(limiter, fiberlimit.Options{
		Domain: "shop",
		Descriptors: []fiberlimit.Descriptor{
			fiberlimit.By(fiberlimit.Header("user", "X-User"), fiberlimit.Route("route")),
		},
		OnDenied: func(c fiber.Ctx, _ fiberlimit.Verdict) error {
			return c.Status(fiber.StatusTooManyRequests).JSON(fiber.Map{"error": "slow down"})
		},
	})
	if err != nil {
		return nil, err
	}
	// Only failed logins count. A proxy on this machine is trusted to say who
	// the client is.
	failedLogins, err := fiberlimit.New(limiter, fiberlimit.Options{
		Domain: "shop",
		Descriptors: []fiberlimit.Descriptor{
			fiberlimit.By(fiberlimit.ClientAddress("failed_login", netip.MustParsePrefix("127.0.0.0/8"))),
		},
		CountIf: func(status int) bool { return status == fiber.StatusUnauthorized },
		Body:    "too many failed logins",
	})
	if err != nil {
		return nil, err
	}
	app := fiber.New()
	app.Use(recover.New())
	app.Get("/items/:id", perUser, item)
	app.Post("/login", failedLogins, login)
	return app, nil
}

func item(c fiber.Ctx) error { return c.SendString("item " + c.Params("id") + "\n") }

func login(c fiber.Ctx) error {
	if c.FormValue("password") != "open sesame" {
		return fiber.NewError(fiber.StatusUnauthorized, "wrong password")
	}
	return c.SendString("welcome\n")
}
