package integration

import (
	"context"
	"strings"
	"time"

	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

func streamAttackers() []attacker {
	return []attacker{
		{"streams that nobody reads", unread(takeStream, streamMessage(1), 200, 200)},
		{"streams of large messages that nobody reads", unread(takeStream, streamMessage(800), 200, 20)},
		{"takes that nobody reads", unread(takeOne, manyLimits(1), 4096, 1)},
		{"long takes that nobody reads", unread(takeOne, manyLimits(90), 4096, 1)},
		{"many takes that nobody reads", unread(takeMany, manyTakes(800), 4096, 1)},
		{"watches that nobody reads", unread(healthWatch, nil, 4096, 1)},
		{"reflection that nobody reads", unread(reflects, []byte("\x22\x1egrpc.health.v1.Health.Check\x00\x00\x00"), 1000, 200)},
		{"reflection of files", unread(reflects, append([]byte("\x22\x30"), "envoy.service.ratelimit.v3.RateLimitService.Shou"...), 1000, 200)},
	}
}

func manyLimits(descriptors int) []byte {
	r := &ratelimitv1.TakeRequest{Domain: "api"}
	for range descriptors {
		r.Descriptors = append(r.Descriptors, &ratelimitv1.Descriptor{Entries: []*ratelimitv1.Entry{{Key: "user", Value: "unread"}}})
	}
	return marshal(r)
}

func manyTakes(n int) []byte {
	take := string(manyLimits(1))
	return []byte(strings.Repeat("\x0a"+string(rune(len(take)))+take, n))
}

func streamMessage(n int) []byte {
	take := string(manyLimits(1))
	item := "\x08\x01\x12" + string(rune(len(take))) + take
	return []byte(strings.Repeat("\x0a"+string(rune(len(item)))+item, n))
}

// unread makes calls on connections of their own, with this many streams and
// messages on each, and reads no answer.
func unread(path string, message []byte, streams, messages int) func(ctx context.Context, v *target) {
	return func(ctx context.Context, v *target) {
		again(ctx, 500*time.Millisecond, func() {
			h, err := dialHTTP2(ctx, v.grpc, 0, true)
			if err != nil {
				return
			}
			data := grpcMessage(message)
			go func() {
				defer h.conn.Close()
				open := make([]uint32, streams)
				for i := range open {
					open[i] = h.open(path)
					if messages == 1 {
						_ = h.send(open[i], data, 16<<10, true)
					}
				}
				_ = h.out.Flush()
				sent := 0
				for range messages {
					for _, stream := range open {
						if messages > 1 && h.mayStill(stream, sent) >= len(data) {
							_ = h.send(stream, data, 16<<10, false)
						}
					}
					sent += len(data)
					_ = h.out.Flush()
					if ctx.Err() != nil || h.isEnded() {
						return
					}
				}
				<-ctx.Done()
			}()
		})
	}
}
