package server_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

var services = []string{"", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"}

func wantHealth(d *servertest.Daemon, want string) {
	d.T.Helper()
	for _, s := range services {
		if got := d.Check(s); got != want {
			d.T.Errorf("health of %q: %s, want %s", s, got, want)
		}
	}
}

func TestHealthKnowsItsServices(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit)
	wantHealth(d, "SERVING")
	for _, s := range []string{"ratelimitd", "envoy.service.ratelimit.v2.RateLimitService", strings.Repeat("x", 5000)} {
		t.Run(fmt.Sprintf("%.60s", s), func(t *testing.T) {
			_, err := d.Health.Check(context.Background(), &healthpb.HealthCheckRequest{Service: s})
			if status.Code(err) != codes.NotFound {
				t.Errorf("got %v, want %s", err, codes.NotFound)
			}
		})
	}
	if p := d.Get("http", "/healthcheck"); p.Code != 200 || p.Body != "OK\n" {
		t.Errorf("/healthcheck: %d %s", p.Code, p.Body)
	}
}

// slowToStart is a store that is away until the test brings it.
func slowToStart() (s *servertest.FakeStore, come func()) {
	var there atomic.Bool
	no := errors.New("redis-7: connection refused")
	return &servertest.FakeStore{
		OnPing: func(context.Context) error {
			if there.Load() {
				return nil
			}
			return no
		},
		OnTake: func(context.Context, []bucket.Hit, []bucket.Decision) error {
			if there.Load() {
				return nil
			}
			return no
		},
	}, func() { there.Store(true) }
}

func TestNotServingUntilTheStoreAnswers(t *testing.T) {
	t.Parallel()
	store, come := slowToStart()
	var ready atomic.Int64
	d := servertest.Run(t, servertest.OneLimit, servertest.On(store), func(o *server.Options) { o.Health.OnAnswer = func(context.Context) { ready.Add(1) } })
	why := "NOT_SERVING: the store does not answer: redis-7: connection refused\n"
	asynctest.Eventually(t, "a reason", func() bool {
		p := d.Get("http", "/healthcheck")
		return p.Code == 500 && p.Body == why
	})
	wantHealth(d, "NOT_SERVING")
	d.WantMetric("ratelimitd_serving", 0)
	if p := d.Get("admin", "/healthz"); p.Code != 200 {
		t.Errorf("it lives, but /healthz says %d", p.Code)
	}
	if _, err := d.Try(servertest.Request("api", 1, "user=x")); status.Code(err) != codes.Unavailable {
		t.Errorf("a request meanwhile: %v", err)
	}
	if p := d.Post(servertest.BodyX); p.Code != 503 {
		t.Errorf("a request meanwhile: %d", p.Code)
	}
	if ready.Load() != 0 {
		t.Error("OnAnswer came too early")
	}
	come()
	asynctest.Eventually(t, "SERVING", func() bool { return d.Check("") == "SERVING" })
	wantHealth(d, "SERVING")
	d.WantMetric("ratelimitd_serving", 1)
	if p := d.Get("http", "/healthcheck"); p.Code != 200 {
		t.Errorf("/healthcheck: %d %s", p.Code, p.Body)
	}
	d.Ask("api", 1, "user=x")
	if n := len(d.Log.Lines("level=WARN", "the store does not answer")); n != 1 {
		t.Errorf("%d warnings, want one", n)
	}
	if n := len(d.Log.Lines("level=INFO", "the store answers")); n != 1 || ready.Load() != 1 {
		t.Errorf("%d lines, OnAnswer was called %d times; want one each", n, ready.Load())
	}
}

// What keeps a daemon from serving ends by itself. Before it is known who is blocked nothing
// is decided, not even without a limit; a daemon that only lacks something decides.
func TestNotServingForAReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, why, health string
		set               func(*server.Health, func() error)
		unanswered        []string // descriptors
	}{
		{"it must not serve", "another daemon is there", "the daemon must not serve: another daemon is there",
			func(h *server.Health, why func() error) { h.Refuses = why }, []string{"user=x"}},
		{"assignments are not loaded", "the assignments are not loaded yet", "the assignments are not loaded yet",
			func(h *server.Health, why func() error) { h.Loading = why }, []string{"user=x", "no_rule=x"}},
		{"it lacks something", "3 assignments are left out", "3 assignments are left out",
			func(h *server.Health, why func() error) { h.Lacks = why }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var isOver atomic.Bool
			d := servertest.Run(t, servertest.OneLimit, func(o *server.Options) {
				c.set(&o.Health, func() error {
					if isOver.Load() {
						return nil
					}
					return errors.New(c.why)
				})
			})
			asynctest.Eventually(t, "a reason", func() bool {
				p := d.Get("http", "/healthcheck")
				return p.Code == 500 && p.Body == "NOT_SERVING: "+c.health+"\n"
			})
			wantHealth(d, "NOT_SERVING")
			for _, descriptor := range c.unanswered {
				if _, err := d.Try(servertest.Request("api", 1, descriptor)); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), c.why) {
					t.Errorf("a request of %s meanwhile: %v", descriptor, err)
				}
			}
			if len(c.unanswered) == 0 {
				d.Ask("api", 1, "user=x")
			}
			isOver.Store(true)
			asynctest.Eventually(t, "SERVING", func() bool { return d.Check("") == "SERVING" })
			d.Ask("api", 1, "user=x")
		})
	}
}

// The log tells at once whether a store is away or refuses.
func TestStoreThatRefusesIsToldFromOneThatIsAway(t *testing.T) {
	t.Parallel()
	var answer atomic.Pointer[error]
	set := func(err error) { answer.Store(&err) }
	set(errors.New("redis-7: connection refused"))
	d := servertest.Run(t, servertest.OneLimit, servertest.On(&servertest.FakeStore{OnPing: func(context.Context) error { return *answer.Load() }}))
	asynctest.Eventually(t, "it is away", func() bool { return len(d.Log.Lines("the store does not answer")) == 1 })
	for range 2 {
		set(fmt.Errorf("redis-7: wrong password: %w", bucket.ErrRefused))
		asynctest.Eventually(t, "it refuses", func() bool {
			p := d.Get("http", "/healthcheck")
			return p.Code == 500 && p.Body == "NOT_SERVING: the store refuses the daemon: redis-7: wrong password: refused\n"
		})
		set(errors.New("redis-7: connection refused"))
		asynctest.Eventually(t, "it is away again", func() bool {
			return strings.Contains(d.Get("http", "/healthcheck").Body, "the store does not answer")
		})
	}
	set(nil)
	asynctest.Eventually(t, "SERVING", func() bool { return d.Check("") == "SERVING" })
	if lines := d.Log.Lines("the store refuses the daemon"); len(lines) != 1 || !strings.Contains(lines[0], "level=ERROR") {
		t.Errorf("the log says within a minute that it refuses: %q", lines)
	}
	if n := len(d.Log.Lines("the store answers")); n != 1 {
		t.Errorf("the log says %d times that it answers", n)
	}
}

func TestStopDoesNotWaitForTheFirstAnswer(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	d := servertest.Run(t, servertest.OneLimit, servertest.On(&servertest.FakeStore{OnPing: func(ctx context.Context) error {
		asked <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}}))
	servertest.Within(t, "a ping", asked)
	wantHealth(d, "NOT_SERVING")
	if p := d.Get("http", "/healthcheck"); p.Code != 500 || p.Body != "NOT_SERVING: starting\n" {
		t.Errorf("/healthcheck: %d %s", p.Code, p.Body)
	}
	d.End()
	if n := len(d.Log.Lines("level=WARN")); n != 0 {
		t.Errorf("%d warnings of a store that was given no time", n)
	}
}

// TestReadyWhileStoppingDoesNotServe stops the server at the moment it becomes
// ready.
func TestReadyWhileStoppingDoesNotServe(t *testing.T) {
	t.Parallel()
	for range 50 {
		reached, release := make(chan struct{}), make(chan struct{})
		d := servertest.Run(t, servertest.OneLimit, func(o *server.Options) {
			o.Health.OnAnswer = func(context.Context) { close(reached); <-release }
		})
		servertest.Within(t, "the store answers", reached)
		go close(release)
		d.Stop <- time.Hour
		asynctest.Eventually(t, "a line in the log", func() bool { return len(d.Log.Lines("msg=stopping")) == 1 })
		wantHealth(d, "NOT_SERVING")
		d.End()
	}
}

func TestReflectionListsTheServices(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit)
	ctx, cancel := context.WithTimeout(context.Background(), servertest.Patience)
	defer cancel()
	stream, err := reflectionpb.NewServerReflectionClient(d.Conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(r *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
		answer, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	listed := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
	var names []string
	for _, s := range listed.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	for _, want := range []string{rlsv3.RateLimitService_ServiceDesc.ServiceName, "grpc.health.v1.Health"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not among %v", want, names)
		}
	}
	// A client like grpcurl then asks for the types.
	file := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{
		FileContainingSymbol: rlsv3.RateLimitService_ServiceDesc.ServiceName,
	}})
	if len(file.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Errorf("no types: %v", file)
	}
}
