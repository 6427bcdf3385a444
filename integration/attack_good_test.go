package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ratelimitd/ratelimitd/client"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// goodPatience is the time for an answer while attackers keep the same
// processors busy.
const goodPatience = 20 * time.Second

// goodCallers ask through every API, each ten times a second.
type goodCallers struct {
	stop    context.CancelFunc
	callers sync.WaitGroup
	mu      sync.Mutex
	ledgers map[string]*goodLedger
}

type goodLedger struct {
	answered, failed int
	took             []time.Duration
	failure          error
}

// percentile returns how long all but this share of the calls took at most.
func (l *goodLedger) percentile(share float64) time.Duration {
	if len(l.took) == 0 {
		return 0
	}
	slices.Sort(l.took)
	return l.took[min(int(share*float64(len(l.took))), len(l.took)-1)]
}

func (v *victim) callInGood(t *testing.T) *goodCallers {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	g := &goodCallers{stop: stop, ledgers: make(map[string]*goodLedger)}
	conn, err := grpc.NewClient(v.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c, err := client.New(v.grpc, client.Timeout(goodPatience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	web := &http.Client{Transport: &http.Transport{}}
	api, health := ratelimitv1.NewRateLimitServiceClient(conn), healthpb.NewHealthClient(conn)
	take := &ratelimitv1.TakeRequest{Domain: "api", Descriptors: []*ratelimitv1.Descriptor{{Entries: []*ratelimitv1.Entry{{Key: "user", Value: "good"}}}}}
	takeManyOf := func(n int) func(ctx context.Context) error {
		many := &ratelimitv1.TakeManyRequest{Takes: slices.Repeat([]*ratelimitv1.TakeRequest{take}, n)}
		return func(ctx context.Context) error {
			_, err := api.TakeMany(ctx, many)
			return err
		}
	}
	for name, ask := range map[string]func(ctx context.Context) error{
		"ShouldRateLimit": func(ctx context.Context) error {
			_, err := v.client.ShouldRateLimit(ctx, request("api", 1, "user=good"))
			return err
		},
		"Take": func(ctx context.Context) error {
			_, err := api.Take(ctx, take)
			return err
		},
		"TakeMany of two":    takeManyOf(2),
		"TakeMany of twenty": takeManyOf(20),
		"client": func(ctx context.Context) error {
			_, err := c.Allow(ctx, "api", client.Entry{Key: "user", Value: "good"})
			return err
		},
		"health": func(ctx context.Context) error {
			_, err := health.Check(ctx, &healthpb.HealthCheckRequest{})
			return err
		},
		"/json":        fetch(web, http.MethodPost, "http://"+v.http+"/json", `{"domain":"api","descriptors":[{"entries":[{"key":"user","value":"good"}]}]}`),
		"/v1/take":     fetch(web, http.MethodPost, "http://"+v.http+"/v1/take", `{"domain":"api","descriptors":[{"entries":[{"key":"user","value":"good"}]}]}`),
		"/healthcheck": fetch(web, http.MethodGet, "http://"+v.http+"/healthcheck", ""),
		"/auth/web":    fetch(web, http.MethodGet, "http://"+v.http+"/auth/web", ""),
	} {
		l := new(goodLedger)
		g.ledgers[name] = l
		if err := ask(ctx); err != nil { // the first call connects
			t.Fatalf("%s, before anything: %v", name, err)
		}
		g.callers.Go(func() {
			again(ctx, 100*time.Millisecond, func() { g.ask(ctx, l, ask) })
		})
	}
	return g
}

func fetch(web *http.Client, method, url, body string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("X-User", "good")
		answer, err := web.Do(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return errors.New(answer.Status)
		}
		return nil
	}
}

func (g *goodCallers) ask(ctx context.Context, l *goodLedger, ask func(context.Context) error) {
	asked, cancel := context.WithTimeout(ctx, goodPatience)
	defer cancel()
	start := time.Now()
	err := ask(asked)
	took := time.Since(start)
	if ctx.Err() != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	l.took = append(l.took, took)
	if err != nil {
		l.failed++
		l.failure = err
	} else {
		l.answered++
	}
}

func (g *goodCallers) goHome() {
	g.stop()
	g.callers.Wait()
}

func (g *goodCallers) report(t *testing.T) {
	t.Helper()
	for name, l := range g.ledgers {
		told := fmt.Sprintf("%s: %d answered", name, l.answered)
		if l.answered > 0 {
			told += fmt.Sprintf(", %d failed, half within %v, 99 %% within %v", l.failed, l.percentile(.5).Round(100*time.Microsecond), l.percentile(.99).Round(time.Millisecond))
		}
		// A call may be refused while the daemon finds out who is to blame.
		if l.failed > 2+l.answered/10 || l.answered == 0 {
			t.Errorf("%s: %v", told, l.failure)
		} else {
			t.Logf("%s: %v", told, l.failure)
		}
	}
}
