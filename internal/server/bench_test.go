package server_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/decisionlog/sink"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/record"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// BenchmarkShouldRateLimit measures the cost without network, from the bytes
// of a request to those of the response. The memory store decides one
// descriptor with two entries.
func BenchmarkShouldRateLimit(b *testing.B) {
	for _, c := range []struct {
		name, descriptor string
		want             rlsv3.RateLimitResponse_Code
		change           []func(*server.Options)
	}{
		{"allowed", "user=alice,route=/orders", rlsv3.RateLimitResponse_OK, nil},
		{"denied", "user=alice,closed=/orders", rlsv3.RateLimitResponse_OVER_LIMIT, nil},
		{"unmatched", "user=alice,other=/orders", rlsv3.RateLimitResponse_OK, nil},
		{"allowed and its hits counted", "user=alice,route=/orders", rlsv3.RateLimitResponse_OK, []func(*server.Options){likeEnvoyproxy}},
		{"allowed and kept", "user=alice,route=/orders", rlsv3.RateLimitResponse_OK, []func(*server.Options){servertest.KeepingTops}},
		{"denied and kept", "user=alice,closed=/orders", rlsv3.RateLimitResponse_OVER_LIMIT, []func(*server.Options){servertest.KeepingTops}},
		{"denied and its hits counted", "user=alice,closed=/orders", rlsv3.RateLimitResponse_OVER_LIMIT, []func(*server.Options){likeEnvoyproxy}},
		{"allowed and recorded", "user=alice,route=/orders", rlsv3.RateLimitResponse_OK, []func(*server.Options){recordingToFile(b)}},
		{"denied and recorded", "user=alice,closed=/orders", rlsv3.RateLimitResponse_OVER_LIMIT, []func(*server.Options){recordingToFile(b)}},
		{"denied and thinned", "user=alice,closed=/orders", rlsv3.RateLimitResponse_OVER_LIMIT, []func(*server.Options){recordingToFile(b, func(o *record.Options) { o.PerSubject = 10 })}},
	} {
		b.Run(c.name, func(b *testing.B) {
			rpc := servertest.RPC{API: portless(b, servertest.BenchLimits, c.change...).RPC()}
			in, err := proto.Marshal(servertest.Request("api", 1, c.descriptor))
			if err != nil {
				b.Fatal(err)
			}
			ctx := context.Background()
			b.ReportAllocs()
			var out []byte
			for b.Loop() {
				if out, err = rpc.AnswerBytes(ctx, in); err != nil {
					b.Fatal(err)
				}
			}
			var response rlsv3.RateLimitResponse
			if err := proto.Unmarshal(out, &response); err != nil || response.GetOverallCode() != c.want {
				b.Fatal(&response, err)
			}
		})
	}
}

// recordingToFile has a server record to a file that is rotated.
func recordingToFile(b *testing.B, change ...func(*record.Options)) func(*server.Options) {
	b.Helper()
	f, err := sink.Open(sink.Options{
		Path: filepath.Join(b.TempDir(), "decisions.jsonl"), MaxSize: 100 << 20, Keep: 1, Buffer: 8 << 20, Log: slog.New(slog.DiscardHandler),
		Counts: sink.NewCounts(sink.NewLines(prometheus.NewRegistry(), "lines", "Lines.")),
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(f.Close)
	return servertest.Recording(f, change...)
}
