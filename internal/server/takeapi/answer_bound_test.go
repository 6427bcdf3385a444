package takeapi_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// longNames has limits whose answers are long.
func longNames() string {
	var b strings.Builder
	b.WriteString("domain: api\ndescriptors:\n  - key: user\n    rate_limits:\n")
	for i := range 20 {
		fmt.Fprintf(&b, "      - {name: %s%d, requests: 1000000, period: 1h}\n", strings.Repeat("n", 60), i)
	}
	b.WriteString("  - {key: short, rate_limit: {requests: 5, period: 1h}}\n")
	return b.String()
}

// An answer that is too long for its caller is refused before it takes.
func TestLongAnswersTakeNothing(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprint("waits ", waits), func(t *testing.T) {
			d := servertest.Start(t, longNames(), func(o *server.Options) { o.RemoteStore = waits })
			of := func(n int) *ratelimitv1.TakeManyRequest {
				r := new(ratelimitv1.TakeManyRequest)
				for range n {
					r.Takes = append(r.Takes, servertest.Taking("short=x"))
				}
				for len(r.Takes) < 1000 && n > 0 {
					r.Takes = append(r.Takes, servertest.Taking("user=x"))
				}
				return r
			}
			_, err := d.API().TakeMany(t.Context(), of(1))
			if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "nothing was taken") {
				t.Errorf("got %v", err)
			}
			if r := d.Take("short=x"); r.GetLimits()[0].GetRemaining() != 4 {
				t.Errorf("a take after it gets %v", r)
			}
			r := of(1)
			r.Takes = r.Takes[:300]
			if response, err := d.API().TakeMany(t.Context(), r); err != nil || len(response.GetResults()) != 300 {
				t.Errorf("fewer get %v", err)
			}
		})
	}
}

// A stream cuts its messages, however long the answers are, and loses none.
func TestStreamMessagesAreCut(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprint("waits ", waits), func(t *testing.T) {
			d := servertest.Start(t, longNames(), func(o *server.Options) { o.RemoteStore = waits })
			stream, err := ratelimitv1.NewRateLimitServiceClient(d.Conn).TakeStream(t.Context(), grpc.MaxCallRecvMsgSize(1<<20))
			if err != nil {
				t.Fatal(err)
			}
			var takes []*ratelimitv1.TakeRequest
			for range 1000 {
				takes = append(takes, servertest.Taking("user=x"))
			}
			go func() {
				_ = stream.Send(servertest.Numbered(0, takes...))
				_ = stream.CloseSend()
			}()
			answers := 0
			for answers < len(takes) {
				r, err := stream.Recv()
				if err != nil {
					t.Fatalf("after %d answers: %v", answers, err)
				}
				if n := proto.Size(r); n > 80<<10 {
					t.Errorf("a message has %d bytes", n)
				}
				answers += len(r.GetResults())
			}
		})
	}
}

// Requests beyond the memory for them are refused and counted, over gRPC and
// HTTP.
func TestRequestsBeyondTheMemoryAreRefused(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, longNames(), func(o *server.Options) { o.Requests.Memory = 200 << 10 })
	large := servertest.Taking("user=" + strings.Repeat("x", 50_000))
	if _, err := d.API().Take(t.Context(), large); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a request of %d bytes gets %v", proto.Size(large), err)
	}
	if _, err := d.API().Take(context.Background(), servertest.Taking("user=x"), grpc.WaitForReady(true)); err != nil {
		t.Errorf("a small one gets %v", err)
	}
}
