package fiberlimit_test

import (
	"log"
	"time"

	"github.com/gofiber/fiber/v3"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/contrib/fiberlimit"
)

// limiter is made as in the first example.
var limiter *client.Client

func Example() {
	limiter, err := client.New("ratelimitd:8081", client.OnFailure(client.FailAllow()))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	limit, err := fiberlimit.New(limiter, fiberlimit.Options{
		Domain:      "api",
		Descriptors: []fiberlimit.Descriptor{fiberlimit.By(fiberlimit.Header("user", "X-User"))},
	})
	if err != nil {
		log.Fatal(err)
	}
	app := fiber.New()
	app.Get("/items/:id", limit, func(c fiber.Ctx) error { return c.SendString("item " + c.Params("id")) })
}

func ExampleNew() {
	limit, err := fiberlimit.New(limiter, fiberlimit.Options{
		Domain: "api",
		// Each address has a limit, and so has each user on each route.
		Descriptors: []fiberlimit.Descriptor{
			fiberlimit.By(fiberlimit.ClientAddress("ip")),
			fiberlimit.By(fiberlimit.Header("user", "X-User"), fiberlimit.Route("route")),
		},
		OnMissing: fiberlimit.Omit, // requests without X-User are limited by their address only
		OnDenied: func(c fiber.Ctx, _ fiberlimit.Verdict) error {
			return c.Status(fiber.StatusTooManyRequests).JSON(fiber.Map{"error": "slow down"})
		},
		// While ratelimitd is away, this process limits by itself.
		OnFailure: client.FailLocal(client.Limit{Algorithm: client.TokenBucket, Requests: 10, Period: time.Second}),
	})
	if err != nil {
		log.Fatal(err)
	}
	fiber.New().Get("/items/:id", limit, func(c fiber.Ctx) error { return c.SendString("item " + c.Params("id")) })
}
