package endpoint_test

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

func TestStoreErrorIsUnavailable(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit, servertest.On(servertest.Failing("no route to redis-7")))
	_, err := d.Try(servertest.Request("api", 1, "user=x"))
	if status.Code(err) != codes.Unavailable || status.Convert(err).Message() != "the store did not decide: no route to redis-7" {
		t.Errorf("gRPC: %v", err)
	}
	if p := d.Post(servertest.BodyX); p.Code != 503 || p.Body != `{"error":"the store did not decide: no route to redis-7"}`+"\n" {
		t.Errorf("HTTP: %d %s", p.Code, p.Body)
	}
	// A request without a limit needs no store.
	servertest.WantShown(t, d.Ask("api", 1, "nothing=x"), "OK; OK remaining 0")
	if got := d.Check(""); got != "SERVING" {
		t.Errorf("a store that failed later: %s", got)
	}
}

// TestDegradedAnswerIsMarked uses a store that decides one hit without its
// state.
func TestDegradedAnswerIsMarked(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit, servertest.On(&servertest.FakeStore{OnTake: func(_ context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
		decisions[len(hits)-1].Degraded = len(hits) > 1
		return nil
	}}))
	for _, c := range []struct {
		descriptors []string
		want        bool
	}{
		{[]string{"user=x"}, false},
		{[]string{"user=x", "user=y"}, true},
	} {
		t.Run(strings.Join(c.descriptors, " "), func(t *testing.T) {
			r := d.Ask("api", 1, c.descriptors...)
			if got := r.GetDynamicMetadata().GetFields()["degraded"].GetBoolValue(); got != c.want {
				t.Errorf("degraded %t, want %t", got, c.want)
			}
		})
	}
}

func TestStoreLearnsThatItsCallerWent(t *testing.T) {
	t.Parallel()
	store := servertest.NewWaiting()
	d := servertest.Start(t, servertest.OneLimit, servertest.On(store))
	for _, c := range []struct {
		name string
		call func(context.Context) error
	}{
		{"gRPC", func(ctx context.Context) error {
			_, err := d.RLS.ShouldRateLimit(ctx, servertest.Request("api", 1, "user=x"))
			return err
		}},
		{"HTTP", func(ctx context.Context) error { return d.PostUntil(ctx, servertest.BodyX) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			failed := make(chan error, 1)
			go func() { failed <- c.call(ctx) }()
			servertest.Within(t, "the store is asked", store.Taking)
			cancel()
			servertest.Within(t, "the store learns it", store.Gone)
			if err := servertest.Within(t, "the call ends", failed); err == nil {
				t.Error("no error")
			}
		})
	}
	asynctest.Eventually(t, "a line in the log", func() bool {
		return len(d.Log.Lines("level=INFO", "call failed", "code=Canceled", "the caller has gone")) > 0
	})
}

func TestStoreGetsTheDeadlineOfTheCaller(t *testing.T) {
	t.Parallel()
	store := servertest.NewWaiting()
	d := servertest.Start(t, servertest.OneLimit, servertest.On(store))
	// On a busy machine, it must not end before the request is there.
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if _, err := d.RLS.ShouldRateLimit(ctx, servertest.Request("api", 1, "user=x")); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v", err)
	}
	if _, ok := servertest.Within(t, "the store is asked", store.Taking).Deadline(); !ok {
		t.Error("the store did not get the deadline")
	}
	servertest.Within(t, "the store learns it", store.Gone)
	asynctest.Eventually(t, "a line in the log", func() bool {
		// The network decides which of the two the server sees.
		return len(d.Log.Lines("call failed", "code=DeadlineExceeded"))+len(d.Log.Lines("call failed", "code=Canceled")) > 0
	})
}

func TestPanicFailsItsRequestAlone(t *testing.T) {
	t.Parallel()
	var panics atomic.Bool
	d := servertest.Start(t, servertest.OneLimit, servertest.On(&servertest.FakeStore{OnTake: func(context.Context, []bucket.Hit, []bucket.Decision) error {
		if panics.Load() {
			panic("the sky falls")
		}
		return nil
	}}))
	panics.Store(true)
	panicLines := func() []string {
		return d.Log.Lines("level=ERROR", "msg=panic", "the sky falls", "stack=", "failures_test.go:")
	}
	_, err := d.Try(servertest.Request("api", 1, "user=x"))
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "sky") {
		t.Errorf("gRPC: %v", err)
	}
	if p := d.Post(servertest.BodyX); p.Code != 500 || p.Body != `{"error":"internal error"}`+"\n" {
		t.Errorf("HTTP: %d %s", p.Code, p.Body)
	}
	if lines := panicLines(); len(lines) != 1 || told(t, lines) != 1 {
		t.Errorf("of two panics within a second, one is logged with where it came from; got %q", lines)
	}
	d.Clock.Move(time.Second)
	d.Post(servertest.BodyX)
	if lines := panicLines(); len(lines) != 2 || told(t, lines) != 3 {
		t.Errorf("of three panics, the last one a second later, two are logged; got %q", lines)
	}
	d.WantMetric("ratelimitd_panics_total", 3)
	panics.Store(false)
	d.Ask("api", 1, "user=x")
	if p := d.Post(servertest.BodyX); p.Code != 200 {
		t.Errorf("and then: %d %s", p.Code, p.Body)
	}
}

var unlogged = regexp.MustCompile(`unlogged_before=(\d+)`)

// told returns how many calls the lines stand for.
func told(t *testing.T, lines []string) int {
	t.Helper()
	n := len(lines)
	for _, line := range lines {
		more, err := strconv.Atoi(unlogged.FindStringSubmatch(line)[1])
		if err != nil {
			t.Fatal(err)
		}
		n += more
	}
	return n
}

// TestFailuresAreLoggedOnceAnInterval makes calls that fail. The first of each
// code is logged at once; then one line an interval counts the others.
func TestFailuresAreLoggedOnceAnInterval(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit, servertest.On(servertest.Failing("gone")))
	for _, c := range []struct {
		domain string
		code   codes.Code
		every  time.Duration
		words  []string
	}{
		{"api", codes.Unavailable, time.Minute, []string{"level=ERROR", "gone"}},
		{"", codes.InvalidArgument, time.Second, []string{"level=INFO", "domain is empty"}},
	} {
		t.Run(c.code.String(), func(t *testing.T) {
			fail := func(calls, wantLines, wantTold int) {
				t.Helper()
				for range calls {
					if _, err := d.Try(servertest.Request(c.domain, 1, "user=x")); status.Code(err) != c.code {
						t.Fatalf("got %v", err)
					}
				}
				lines := d.Log.Lines(append(c.words, "call failed", "code="+c.code.String())...)
				if len(lines) != wantLines || told(t, lines) != wantTold {
					t.Errorf("%d lines that speak of %d calls, want %d of %d", len(lines), told(t, lines), wantLines, wantTold)
				}
			}
			fail(1, 1, 1)
			fail(5, 1, 1)
			d.Clock.Move(c.every - time.Microsecond)
			fail(1, 1, 1)
			d.Clock.Move(time.Microsecond)
			fail(1, 2, 8)
			fail(2, 2, 8)
			d.Clock.Move(c.every)
			fail(1, 3, 11)
		})
	}
}
