// A pool of workers whose jobs wait for a slot, and stop if they lose it. Its limits are
// those of the recipe "A worker pool over all machines" in docs/cookbook.md.
//
//	ratelimitd serve --limits-path limits/recipe.yaml &
//	go run ./examples/pool 127.0.0.1:8081
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
)

func main() {
	limiter, err := client.New(os.Args[1], client.Timeout(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	jobs := make(chan int)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for job := range jobs {
				if err := run(limiter, "initech", job); err != nil {
					log.Fatal(err)
				}
			}
		})
	}
	for job := range 20 {
		jobs <- job
	}
	close(jobs)
	workers.Wait()
	fmt.Println("done")
}

// run does one job of a tenant once it may start and has a slot.
func run(limiter *client.Client, tenant string, job int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	of := []client.Entry{client.E("tenant", tenant)}
	err := limiter.Do(ctx, client.Request{Domain: "jobs", Descriptors: []client.Descriptor{
		{Entries: of},                   // one of the thousand an hour
		{Entries: of, HolderKey: "job"}, // and one of the three slots
	}}, func(ctx context.Context) error {
		return work(ctx, job)
	})
	if errors.Is(err, client.ErrSlotLost) {
		return fmt.Errorf("job %d has to begin again: %w", job, err)
	}
	return err
}

func work(ctx context.Context, _ int) error {
	select {
	case <-time.After(10 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
