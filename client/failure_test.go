package client_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/internal/daemontest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// silent reads everything and answers nothing.
func silent() *daemontest.Script {
	s := new(daemontest.Script)
	s.OnStream = s.ReadAll
	s.OnTake = func(ctx context.Context, _ *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s
}

func TestFailureChoiceDecidesWhenTheDaemonDoesNot(t *testing.T) {
	t.Parallel()
	quiet := silent().Serve(t)
	fails := new(daemontest.Script)
	fails.OnStream = func(stream daemontest.Stream) error {
		for {
			m, err := stream.Recv()
			if err != nil {
				return nil
			}
			failure := &ratelimitv1.Error{Code: uint32(codes.Unavailable), Message: "no store"}
			if err := daemontest.Answer(stream, m, &ratelimitv1.TakeResult{Result: &ratelimitv1.TakeResult_Error{Error: failure}}); err != nil {
				return err
			}
		}
	}
	storeless := fails.Serve(t)
	for name, at := range map[string]struct {
		target  string
		timeout time.Duration
		code    codes.Code
	}{
		"nobody listens":   {daemontest.UnusedAddress(t), patience, codes.Unavailable},
		"no answer comes":  {quiet, 20 * time.Millisecond, codes.DeadlineExceeded},
		"the answer fails": {storeless, patience, codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			local := client.FailLocal(client.Limit{Algorithm: client.TokenBucket, Requests: 2, Period: time.Hour})
			for _, choice := range []client.Failure{client.FailAllow(), client.FailDeny(), client.FailError(), local} {
				t.Run(choice.String(), func(t *testing.T) {
					t.Parallel()
					c := connect(t, at.target, client.Timeout(at.timeout), client.OnFailure(choice))
					got, err := c.Take(within(t), one("api", "user", "x"))
					if choice.String() == "error" {
						if got != nil || status.Code(err) != at.code {
							t.Errorf("Take: %+v, %v", got, err)
						}
					} else if err != nil || got.Allowed != (choice.String() != "deny") || !got.Degraded || status.Code(got.Failure) != at.code {
						t.Errorf("Take: %+v, %v", got, err)
					}
					ok, err := c.Allow(within(t), "api", client.E("user", "x"))
					if ok != (choice.String() == "allow" || choice.String() == "local") || (err != nil) != (choice.String() == "error") {
						t.Errorf("Allow: %v, %v", ok, err)
					}
					want := client.Stats{}
					switch choice.String() {
					case "allow":
						want.FailedAllowed = 2
					case "deny":
						want.FailedDenied = 2
					case "local":
						want.FailedLocal = 2
					case "error":
						want.FailedError = 2
					}
					s := c.Stats()
					s.Streams, s.Alone = 0, 0
					if s != want {
						t.Errorf("Stats: %+v", s)
					}
				})
			}
		})
	}
}

func TestFailLocalLimitsInThisProcess(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.UnusedAddress(t), client.OnFailure(client.FailLocal(client.Limit{Algorithm: client.FixedWindow, Requests: 3, Period: 366 * 24 * time.Hour})))
	r := one("api", "user", "x")
	r.Descriptors[0].Cost = 2
	first, err := c.Take(within(t), r)
	if err != nil || !first.Allowed || first.Limits[0].Remaining != 1 || first.Limits[0].Algorithm != client.FixedWindow {
		t.Fatal(first, err)
	}
	got, err := c.Take(within(t), r)
	if err != nil || got.Allowed || got.Denier() == nil || got.RetryAfter <= 0 {
		t.Errorf("over the limit: %+v, %v", got, err)
	}
	if got, err := c.Take(within(t), one("api", "user", "y")); err != nil || !got.Allowed {
		t.Errorf("another user: %+v, %v", got, err)
	}
	if err := c.GiveBack(within(t), first); err != nil {
		t.Error(err)
	}
	if got, err := c.Take(within(t), r); err != nil || !got.Allowed {
		t.Errorf("after a give-back: %+v, %v", got, err)
	}
}

func TestFailureChoiceOfARequestWins(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.UnusedAddress(t), client.OnFailure(client.FailAllow()))
	r := one("api", "user", "x")
	r.OnFailure = client.FailDeny()
	if got, err := c.Take(within(t), r); err != nil || got.Allowed {
		t.Error(got, err)
	}
}
