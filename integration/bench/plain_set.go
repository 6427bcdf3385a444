package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	plainSets     = 200 // pipelines of
	plainPipeline = 64
)

// plainSet returns what one write of a state costs the server by itself: a SET
// with PX of 32 bytes to one of as many keys as the rows have, in pipelines. A
// decision needs one, and cannot cost less: machines differ by more than that,
// so Redis's times say little without it.
func (r *redisServers) plainSet(ctx context.Context) (time.Duration, error) {
	value := make([]byte, 32)
	random := rand.New(rand.NewPCG(3, 4))
	set := func(pipelines int) error {
		for range pipelines {
			_, err := r.clients[0].Pipelined(ctx, func(p redis.Pipeliner) error {
				for range plainPipeline {
					p.Set(ctx, fmt.Sprintf("plain:user-%07d", random.IntN(population)), value, time.Minute)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := set(plainSets); err != nil { // most keys are there then, as in the rows
		return 0, err
	}
	before, err := cpuTime(r.servers[0].pid())
	if err != nil {
		return 0, err
	}
	if err := set(plainSets); err != nil {
		return 0, err
	}
	after, err := cpuTime(r.servers[0].pid())
	if err != nil {
		return 0, err
	}
	return (after - before) / (plainSets * plainPipeline), r.clients[0].FlushDB(ctx).Err()
}
