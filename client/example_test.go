package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
)

func Example() {
	limiter, err := client.New("ratelimitd:8081", client.OnFailure(client.FailAllow()))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	allowed, err := limiter.Allow(context.Background(), "api", client.E("user", "alice"))
	if err != nil {
		log.Fatal(err) // the request is invalid, or its context ended
	}
	if !allowed {
		fmt.Println("too many requests")
	}
}

func ExampleNew() {
	// Two daemons are asked in turns. A call waits up to 20 ms for its answer.
	limiter, err := client.New("ratelimitd-a:8081,ratelimitd-b:8081", client.Timeout(20*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
}

func ExampleClient_Allow() {
	limiter, err := client.New("ratelimitd:8081")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	// The descriptor has two entries: a rule for user and, below it, one for
	// route.
	allowed, err := limiter.Allow(context.Background(), "api", client.E("user", "alice"), client.E("route", "/items"))
	fmt.Println(allowed, err)
}

// A gateway reserves what an answer may cost at most, and settles what it did: parallel
// requests cannot overshoot together, and nothing stays reserved of a call that failed.
func ExampleResult_Settle() {
	limiter, err := client.New("ratelimitd:8081")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	answer := func(ctx context.Context, requestID, user, team string, maxTokens uint64) error {
		tokens := func(key, value string) client.Descriptor {
			return client.Descriptor{Entries: []client.Entry{client.E(key, value)}, Cost: maxTokens}
		}
		taken, err := limiter.Take(ctx, client.Request{
			Domain: "llm", ID: requestID, Descriptors: []client.Descriptor{tokens("user", user), tokens("team", team)},
		})
		if err != nil {
			return err
		}
		if !taken.Allowed {
			return fmt.Errorf("try again in %s", taken.RetryAfter)
		}
		used, err := askModel(ctx, maxTokens) // 0 if it failed
		// The caller may have disconnected; what was used was used.
		if _, lost := taken.Settle(context.WithoutCancel(ctx), used); lost != nil {
			log.Printf("settle %s: %v", requestID, lost) // try again later, or the estimate stands
		}
		return err
	}
	_ = answer
}

func askModel(context.Context, uint64) (used uint64, err error) { return 812, nil }

func ExampleClient_Take() {
	limiter, err := client.New("dns:///ratelimitd.example:8081")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	// Both descriptors pass, or neither consumes anything.
	result, err := limiter.Take(context.Background(), client.Request{
		Domain: "api",
		Descriptors: []client.Descriptor{
			{Entries: []client.Entry{client.E("user", "alice")}},
			{Entries: []client.Entry{client.E("ip", "192.0.2.1")}},
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
	// If the host has a leaky_bucket, its requests leave evenly.
	_, err = limiter.Wait(ctx, client.Request{
		Domain:      "crawler",
		Descriptors: []client.Descriptor{{Entries: []client.Entry{client.E("host", "example.com")}}},
	})
	if errors.Is(err, client.ErrTooLate) {
		fmt.Println("not within ten seconds")
	}
}

// However many processes do this, as many jobs of the tenant run at once as the limit says.
func ExampleClient_Do() {
	limiter, err := client.New("ratelimitd:8081")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	err = limiter.Do(ctx, client.Request{
		Domain:      "jobs",
		Descriptors: []client.Descriptor{{Entries: []client.Entry{client.E("tenant", "acme")}, HolderKey: "job"}},
	}, func(ctx context.Context) error {
		_, err := askModel(ctx, 1000) // stops when ctx ends: then the slot may be lost
		return err
	})
	if errors.Is(err, context.DeadlineExceeded) {
		fmt.Println("no slot within ten minutes, or the job took too long")
	}
}

// A request that is refused at once where all slots are taken.
func ExampleClient_TryAcquire() {
	limiter, err := client.New("ratelimitd:8081", client.OnFailure(client.FailAllow()))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	slot, result, err := limiter.TryAcquire(context.Background(), client.Request{
		Domain:      "llm",
		Descriptors: []client.Descriptor{{Entries: []client.Entry{client.E("tenant", "acme")}, HolderKey: "request_id"}},
	})
	switch {
	case err != nil:
		log.Fatal(err)
	case slot == nil:
		fmt.Println("denied; nobody knows for how long:", result.RetryAfter == client.RetryUnknown)
		return
	}
	defer slot.Release()
	select {
	case <-slot.Lost():
		log.Print(slot.Err())
	case <-time.After(time.Second): // the work
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
		// A mail that was not sent does not count.
		if err := limiter.GiveBack(ctx, result); err != nil {
			log.Print(err)
		}
	}
}

func send() error { return errors.New("no connection") }

func ExampleDescriptor_cost() {
	limiter, err := client.New("ratelimitd:8081")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	user := []client.Entry{client.E("user", "alice")}
	for _, d := range []client.Descriptor{
		{Entries: user},             // takes 1
		{Entries: user, Cost: 5},    // takes 5
		{Entries: user, Peek: true}, // takes nothing, and asks whether 1 would be allowed
	} {
		result, err := limiter.Take(context.Background(), client.Request{Domain: "api", Descriptors: []client.Descriptor{d}})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(result.Allowed)
	}
}

func ExampleDescriptor_numbers() {
	limiter, err := client.New("ratelimitd:8081")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	// The plan of this customer replaces the numbers of the rule.
	plan := &client.Numbers{Requests: 1000, Period: time.Hour}
	_, err = limiter.Take(context.Background(), client.Request{
		Domain:      "api",
		Descriptors: []client.Descriptor{{Entries: []client.Entry{client.E("user", "alice")}, Numbers: plan}},
	})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleOnFailure() {
	// While ratelimitd is away, requests are allowed.
	limiter, err := client.New("ratelimitd:8081", client.OnFailure(client.FailAllow()))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	// This one is denied then.
	_, err = limiter.Take(context.Background(), client.Request{
		Domain:      "login",
		Descriptors: []client.Descriptor{{Entries: []client.Entry{client.E("user", "alice")}}},
		OnFailure:   client.FailDeny(),
	})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleFailLocal() {
	// No daemon listens on this port, so this process decides by itself: it allows
	// each descriptor two requests an hour.
	limiter, err := client.New("localhost:1", client.OnFailure(client.FailLocal(client.Limit{
		Algorithm: client.TokenBucket,
		Requests:  2,
		Period:    time.Hour,
	})))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	for range 3 {
		fmt.Println(limiter.Allow(context.Background(), "api", client.E("user", "alice")))
	}
	fmt.Println(limiter.Stats().FailedLocal, "were decided here")
	// Output:
	// true <nil>
	// true <nil>
	// false <nil>
	// 3 were decided here
}
