// A gateway to a language model. For each request it reserves the tokens that the answer
// may cost at most, and settles what it did cost. Limits are in deploy/llm/limits.yaml.
//
//	ratelimitd serve --limits-path deploy/llm/limits.yaml &
//	go run ./examples/llm 127.0.0.1:8081
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
)

func main() {
	// A model takes seconds, so an answer of the daemon may take longer than the default.
	limiter, err := client.New(os.Args[1], client.Timeout(2*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	fmt.Println(answer(context.Background(), limiter, "req-1", "alice", "red", 4000))
}

// answer asks the model for a user of a team. It costs at most maxTokens.
func answer(ctx context.Context, limiter *client.Client, requestID, user, team string, maxTokens uint64) error {
	taken, err := limiter.Take(ctx, client.Request{
		Domain: "llm-gateway",
		ID:     requestID,
		Descriptors: []client.Descriptor{
			{Entries: []client.Entry{client.E("user", user)}, Cost: maxTokens},
			{Entries: []client.Entry{client.E("team", team)}, Cost: maxTokens},
			{Entries: []client.Entry{client.E("user", user), client.E("request_id", requestID)}},
		},
	})
	if err != nil {
		return err
	}
	if !taken.Allowed {
		return fmt.Errorf("too many tokens, or too many requests at once")
	}
	used, err := complete(ctx, maxTokens)
	// The caller may have gone; what was used was used.
	ctx = context.WithoutCancel(ctx)
	settled, lost := taken.Settle(ctx, used)
	if lost != nil {
		return fmt.Errorf("settle %s again: %w", requestID, lost)
	}
	fmt.Println("settled:", settled.Settled, settled.Limits[0].Returned, "came back")
	return err
}

// complete stands for the call of the model.
func complete(context.Context, uint64) (used uint64, err error) { return 812, nil }
