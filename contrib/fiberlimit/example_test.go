package fiberlimit_test

import (
	"log"

	"github.com/gofiber/fiber/v3"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/contrib/fiberlimit"
)

func Example() {
	limiter, err := client.New("ratelimitd:8081", client.OnFailure(client.FailAllow()))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	limit, err := fiberlimit.New(limiter, fiberlimit.Options{
		Domain: "api",
		Descriptors: []fiberlimit.Descriptor{
			fiberlimit.By(fiberlimit.ClientAddress("ip")),
			fiberlimit.By(fiberlimit.Header("user", "X-User"), fiberlimit.Route("route")),
		},
		OnMissing: fiberlimit.Omit,
	})
	if err != nil {
		log.Fatal(err)
	}
	app := fiber.New()
	app.Get("/items/:id", limit, func(c fiber.Ctx) error { return c.SendString("item " + c.Params("id")) })
}
