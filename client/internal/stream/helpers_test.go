package stream_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/client/internal/stream"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(asynctest.Settling{Tests: m, IsSettled: func() bool { return goleak.Find() == nil }})
}

// patience is how long a test waits for something that must happen. It is the
// timeout of pools whose takes are answered.
const patience = 30 * time.Second

// connect returns a pool that the test closes.
func connect(t testing.TB, target string, change ...func(*stream.Options)) *stream.Pool {
	t.Helper()
	o := stream.Options{
		Timeout: patience,
		Logger:  slog.New(slog.DiscardHandler),
		Now:     time.Now,
		Dial:    []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())},
	}
	for _, c := range change {
		c(&o)
	}
	p, err := stream.NewPool(target, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// ask asks about a user. It returns whether the take was allowed.
func ask(t testing.TB, p *stream.Pool, user string) (bool, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return askUntil(ctx, t, p, user)
}

func askUntil(ctx context.Context, t testing.TB, p *stream.Pool, user string) (bool, error) {
	t.Helper()
	request, err := proto.Marshal(&ratelimitv1.TakeRequest{Domain: "api", Descriptors: []*ratelimitv1.Descriptor{
		{Entries: []*ratelimitv1.Entry{{Key: "user", Value: user}}},
	}})
	if err != nil {
		t.Error(err)
	}
	take := stream.NewTake()
	take.Request = request
	if err := p.Ask(ctx, take); err != nil {
		return false, err
	}
	var answer ratelimitv1.TakeResponse
	if err := proto.Unmarshal(take.Answer, &answer); err != nil {
		t.Error(err)
	}
	return answer.GetAllowed(), nil
}

func mustAllow(t testing.TB, p *stream.Pool) {
	t.Helper()
	if ok, err := ask(t, p, "x"); !ok || err != nil {
		t.Error(ok, err)
	}
}
