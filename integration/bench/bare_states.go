package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	barePipelines = 200 // of
	barePipeline  = 64
)

// bareStates returns what a state costs the server by itself: an MGET reads it,
// with others, and a SET with PX writes it. States have 32 bytes and keys as many
// values as in the rows. A decision needs both, and what else it needs comes on
// top: machines differ by more than that, so Redis's times say little without it.
func (r *redisServers) bareStates(ctx context.Context) (time.Duration, error) {
	value := make([]byte, 32)
	random := rand.New(rand.NewPCG(3, 4))
	run := func() error {
		for range barePipelines {
			keys := make([]string, barePipeline)
			for i := range keys {
				keys[i] = fmt.Sprintf("plain:user-%07d", random.IntN(population))
			}
			_, err := r.clients[0].Pipelined(ctx, func(p redis.Pipeliner) error {
				p.MGet(ctx, keys...)
				for _, key := range keys {
					p.Set(ctx, key, value, time.Minute)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := run(); err != nil { // most keys are there then, as in the rows
		return 0, err
	}
	before, err := cpuTime(r.servers[0].pid())
	if err != nil {
		return 0, err
	}
	if err := run(); err != nil {
		return 0, err
	}
	after, err := cpuTime(r.servers[0].pid())
	if err != nil {
		return 0, err
	}
	return (after - before) / (barePipelines * barePipeline), r.clients[0].FlushDB(ctx).Err()
}
