package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
)

func ExampleClient_Allow() {
	limiter, err := client.New("ratelimitd:8081", client.OnFailure(client.FailAllow()))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	allowed, err := limiter.Allow(context.Background(), "api", client.E("user", "alice"))
	if err != nil {
		log.Fatal(err) // the request cannot be meant, or its context ended
	}
	if !allowed {
		fmt.Println("too many requests")
	}
}

func ExampleClient_Take() {
	limiter, err := client.New("dns:///ratelimitd.example:8081")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	result, err := limiter.Take(context.Background(), client.Request{
		Domain: "api",
		Descriptors: []client.Descriptor{
			{Entries: []client.Entry{client.E("user", "alice")}, Cost: 5},
			{
				Entries: []client.Entry{client.E("plan", "alice")},
				Numbers: &client.Numbers{Requests: 1000, Period: time.Hour}, // as her plan says
			},
		},
	})
	switch {
	case err != nil:
		log.Fatal(err)
	case result.Failure != nil:
		log.Print("ratelimitd did not decide: ", result.Failure)
	case !result.Allowed:
		fmt.Printf("%s denied; try again after %v\n", result.Denier().Name, result.RetryAfter)
	}
}

func ExampleClient_Wait() {
	limiter, err := client.New("ratelimitd:8081")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	// Where the host has a leaky_bucket, its requests leave evenly.
	_, err = limiter.Wait(ctx, client.Request{
		Domain:      "crawler",
		Descriptors: []client.Descriptor{{Entries: []client.Entry{client.E("host", "example.com")}}},
	})
	if errors.Is(err, client.ErrTooLate) {
		fmt.Println("not within ten seconds")
	}
}

func ExampleClient_GiveBack() {
	limiter, err := client.New("ratelimitd:8081")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	ctx := context.Background()
	result, err := limiter.Take(ctx, client.Request{
		Domain:      "mail",
		Descriptors: []client.Descriptor{{Entries: []client.Entry{client.E("sender", "alice")}}},
	})
	if err != nil || !result.Allowed {
		return
	}
	if err := send(); err != nil {
		// What was not sent does not count.
		if err := limiter.GiveBack(ctx, result); err != nil {
			log.Print(err)
		}
	}
}

func send() error { return errors.New("no connection") }

func ExampleFailLocal() {
	// While ratelimitd is away, this process alone lets each descriptor have 20
	// requests a second.
	limiter, err := client.New("ratelimitd:8081", client.OnFailure(client.FailLocal(client.Limit{
		Algorithm: client.TokenBucket,
		Requests:  20,
		Period:    time.Second,
	})))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	fmt.Println(limiter.Stats().FailedLocal, "so far")
	// Output: 0 so far
}
