package guard_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/guard"
)

// Job is the request of a framework: a job from a queue. The status of a job is
// whether it succeeded.
type Job struct{ Tenant string }

// Refuse is the handler of jobs that are refused.
type Refuse func(Job, guard.Verdict) error

// limited returns the middleware for the framework.
func limited(c *client.Client, o guard.Options[Job, bool, Refuse]) (func(context.Context, Job, func(Job) error) error, error) {
	if o.OnDenied == nil {
		o.OnDenied = func(Job, guard.Verdict) error { return errors.New("too many jobs") }
	}
	if o.OnError == nil {
		o.OnError = func(_ Job, v guard.Verdict) error { return v.Err }
	}
	g, err := guard.New(c, o)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, j Job, handle func(Job) error) error {
		v := g.Ask(ctx, j)
		if refuse, isRefused := g.Refusal(v); isRefused {
			return refuse(j, v)
		}
		err := handle(j)
		g.Finish(ctx, v, err == nil)
		return err
	}, nil
}

// A middleware for another framework: here, one of jobs.
func Example() {
	// No daemon listens on this port, so that the client decides by itself.
	limiter, err := client.New("localhost:1", client.OnFailure(client.FailLocal(client.Limit{
		Algorithm: client.TokenBucket, Requests: 2, Period: time.Hour,
	})))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	do, err := limited(limiter, guard.Options[Job, bool, Refuse]{
		Domain: "jobs",
		Descriptors: []guard.Descriptor[Job]{guard.By(guard.Part[Job]{
			Key:   "tenant",
			Value: func(j Job) (string, bool) { return j.Tenant, j.Tenant != "" },
		})},
		// Only jobs that succeed count.
		CountIf: func(isDone bool) bool { return isDone },
	})
	if err != nil {
		log.Fatal(err)
	}
	fails := func(Job) error { return errors.New("no disk") }
	succeeds := func(Job) error { return nil }
	for _, handle := range []func(Job) error{fails, succeeds, succeeds, succeeds} {
		fmt.Println(do(context.Background(), Job{Tenant: "acme"}, handle))
	}
	// Output:
	// no disk
	// <nil>
	// <nil>
	// too many jobs
}
