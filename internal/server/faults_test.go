package server_test

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

func failing(text string) *fakeStore {
	return &fakeStore{take: func(context.Context, []bucket.Hit, []bucket.Decision) error { return errors.New(text) }}
}

func TestStoreErrorIsUnavailable(t *testing.T) {
	t.Parallel()
	d := start(t, oneLimit, on(failing("no route to redis-7")))
	_, err := d.try(request("api", 1, "user=x"))
	if status.Code(err) != codes.Unavailable || status.Convert(err).Message() != "the store did not decide: no route to redis-7" {
		t.Errorf("gRPC: %v", err)
	}
	if p := d.post(bodyX); p.code != 503 || p.body != `{"error":"the store did not decide: no route to redis-7"}`+"\n" {
		t.Errorf("HTTP: %d %s", p.code, p.body)
	}
	// A request without a limit needs no store.
	wantShown(t, d.ask("api", 1, "nothing=x"), "OK; OK remaining 0")
	if got := d.check(""); got != "SERVING" {
		t.Errorf("a store that failed later: %s", got)
	}
}

// TestDegradedAnswerIsMarked uses a store that decides one hit without its
// state.
func TestDegradedAnswerIsMarked(t *testing.T) {
	t.Parallel()
	d := start(t, oneLimit, on(&fakeStore{take: func(_ context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
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
			r := d.ask("api", 1, c.descriptors...)
			if got := r.GetDynamicMetadata().GetFields()["degraded"].GetBoolValue(); got != c.want {
				t.Errorf("degraded %t, want %t", got, c.want)
			}
		})
	}
}

// waiting is a store that answers when it is released or when the caller has
// gone.
type waiting struct {
	fakeStore
	taking  chan context.Context // one of each Take that began
	release chan struct{}
	gone    chan error // one of each Take whose caller has gone
}

func newWaiting() *waiting {
	w := &waiting{taking: make(chan context.Context, 10), release: make(chan struct{}), gone: make(chan error, 10)}
	w.take = func(ctx context.Context, _ []bucket.Hit, _ []bucket.Decision) error {
		w.taking <- ctx
		select {
		case <-w.release:
			return nil
		case <-ctx.Done():
			w.gone <- ctx.Err()
			return ctx.Err()
		}
	}
	return w
}

// within receives a value that must come.
func within[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("waited in vain: %s", what)
	}
	return v
}

func TestStoreLearnsThatItsCallerWent(t *testing.T) {
	t.Parallel()
	store := newWaiting()
	d := start(t, oneLimit, on(store))
	for _, c := range []struct {
		name string
		call func(context.Context) error
	}{
		{"gRPC", func(ctx context.Context) error {
			_, err := d.rls.ShouldRateLimit(ctx, request("api", 1, "user=x"))
			return err
		}},
		{"HTTP", func(ctx context.Context) error { return d.postUntil(ctx, bodyX) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			failed := make(chan error, 1)
			go func() { failed <- c.call(ctx) }()
			within(t, "the store is asked", store.taking)
			cancel()
			within(t, "the store learns it", store.gone)
			if err := within(t, "the call ends", failed); err == nil {
				t.Error("no error")
			}
		})
	}
	asynctest.Eventually(t, "a line in the log", func() bool {
		return len(d.log.lines("level=INFO", "call failed", "code=Canceled", "the caller has gone")) > 0
	})
}

func TestStoreGetsTheDeadlineOfTheCaller(t *testing.T) {
	t.Parallel()
	store := newWaiting()
	d := start(t, oneLimit, on(store))
	// It must not end before the request is there, on a busy machine.
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if _, err := d.rls.ShouldRateLimit(ctx, request("api", 1, "user=x")); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v", err)
	}
	if _, ok := within(t, "the store is asked", store.taking).Deadline(); !ok {
		t.Error("the store did not get the deadline")
	}
	within(t, "the store learns it", store.gone)
	asynctest.Eventually(t, "a line in the log", func() bool {
		// The network decides which of the two the server sees.
		return len(d.log.lines("call failed", "code=DeadlineExceeded"))+len(d.log.lines("call failed", "code=Canceled")) > 0
	})
}

func TestPanicFailsItsRequestAlone(t *testing.T) {
	t.Parallel()
	var panics atomic.Bool
	d := start(t, oneLimit, on(&fakeStore{take: func(context.Context, []bucket.Hit, []bucket.Decision) error {
		if panics.Load() {
			panic("the sky falls")
		}
		return nil
	}}))
	panics.Store(true)
	panicLines := func() []string {
		return d.log.lines("level=ERROR", "msg=panic", "the sky falls", "stack=", "faults_test.go:")
	}
	_, err := d.try(request("api", 1, "user=x"))
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "sky") {
		t.Errorf("gRPC: %v", err)
	}
	if p := d.post(bodyX); p.code != 500 || p.body != `{"error":"internal error"}`+"\n" {
		t.Errorf("HTTP: %d %s", p.code, p.body)
	}
	if lines := panicLines(); len(lines) != 1 || told(t, lines) != 1 {
		t.Errorf("of two panics within a second, one is logged with where it came from; got %q", lines)
	}
	d.clock.Move(time.Second)
	d.post(bodyX)
	if lines := panicLines(); len(lines) != 2 || told(t, lines) != 3 {
		t.Errorf("of three panics, the last one a second later, two are logged; got %q", lines)
	}
	d.wantMetric("ratelimitd_panics_total", 3)
	panics.Store(false)
	d.ask("api", 1, "user=x")
	if p := d.post(bodyX); p.code != 200 {
		t.Errorf("and then: %d %s", p.code, p.body)
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
	d := start(t, oneLimit, on(failing("gone")))
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
					if _, err := d.try(request(c.domain, 1, "user=x")); status.Code(err) != c.code {
						t.Fatalf("got %v", err)
					}
				}
				lines := d.log.lines(append(c.words, "call failed", "code="+c.code.String())...)
				if len(lines) != wantLines || told(t, lines) != wantTold {
					t.Errorf("%d lines that speak of %d calls, want %d of %d", len(lines), told(t, lines), wantLines, wantTold)
				}
			}
			fail(1, 1, 1)
			fail(5, 1, 1)
			d.clock.Move(c.every - time.Microsecond)
			fail(1, 1, 1)
			d.clock.Move(time.Microsecond)
			fail(1, 2, 8)
			fail(2, 2, 8)
			d.clock.Move(c.every)
			fail(1, 3, 11)
		})
	}
}

func TestNoFailureIsLostFromTheLog(t *testing.T) {
	t.Parallel()
	d := start(t, oneLimit, on(failing("gone")))
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			for range 20 {
				_, _ = d.try(request("api", 1, "user=x"))
			}
		})
	}
	callers.Wait()
	lines := func() []string { return d.log.lines("call failed", "code=Unavailable") }
	if got := lines(); len(got) != 1 || told(t, got) != 1 {
		t.Errorf("320 calls in one moment have the lines %q", got)
	}
	d.clock.Move(time.Minute)
	_, _ = d.try(request("api", 1, "user=x"))
	if got := told(t, lines()); got != 321 {
		t.Errorf("the lines speak of %d calls, 321 were made", got)
	}
}
