package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server"
)

// patience is how long a test waits for what must happen, on a busy machine too.
const patience = 2 * time.Minute

// midnight began a day, a week of fixed windows and every shorter window:
// Thursday, 1 January 2026. Tests begin 10.25 s after it.
var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// newClock returns a clock for the store and the log. It stands still unless a
// test moves it.
func newClock() *asynctest.Clock {
	c := asynctest.NewClock()
	c.Set(midnight.Add(10250 * time.Millisecond).UnixMicro())
	return c
}

// logged is a log that a test can read while the server writes it.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// lines returns the lines that hold all of the words.
func (l *logged) lines(words ...string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
	for line := range strings.Lines(l.text.String()) {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			found = append(found, line)
		}
	}
	return found
}

// daemon is a server that runs until the test ends, with clients.
type daemon struct {
	t     testing.TB
	srv   *server.Server
	live  *rules.Live
	file  string // of the limits
	log   *logged
	clock *asynctest.Clock
	// since is the clock of reloads. It is that of the store unless a test
	// changes it.
	since func() int64

	rls    rlsv3.RateLimitServiceClient
	health healthpb.HealthClient
	conn   *grpc.ClientConn
	client *http.Client

	stop  chan time.Duration
	ended chan struct{}
	err   error // of Run, once ended
}

// start runs a server on the limits and waits until it serves.
func start(t testing.TB, limits string, change ...func(*server.Options)) *daemon {
	t.Helper()
	d := run(t, limits, change...)
	asynctest.Eventually(t, "SERVING", func() bool { return d.check("") == "SERVING" })
	return d
}

// run runs a server on the limits; it may not serve yet.
func run(t testing.TB, limits string, change ...func(*server.Options)) *daemon {
	t.Helper()
	d := &daemon{t: t, log: new(logged), clock: newClock(), stop: make(chan time.Duration), ended: make(chan struct{})}
	o := d.options(limits)
	for _, c := range change {
		c(&o)
	}
	var err error
	if d.srv, err = server.New(o); err != nil {
		t.Fatal(err)
	}
	d.dial(grpc.WithTransportCredentials(insecure.NewCredentials()))
	d.client = &http.Client{Transport: &http.Transport{}, Timeout: patience}
	go func() {
		d.err = d.srv.Run(d.stop)
		close(d.ended)
	}()
	t.Cleanup(d.end)
	return d
}

// options are those of a server with the memory store on free ports.
func (d *daemon) options(limits string) server.Options {
	d.t.Helper()
	d.file = filepath.Join(d.t.TempDir(), "limits.yaml")
	d.write(limits)
	logger := slog.New(slog.NewTextHandler(d.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	d.since = d.clock.Micros
	d.live = limitsfile.Options{Clock: func() int64 { return d.since() }}.NewLive(d.file, logger)
	if err := d.live.Reload(); err != nil {
		d.t.Fatal(err)
	}
	return server.Options{
		GRPC:     server.GRPC{Address: "127.0.0.1:0"},
		HTTP:     server.HTTP{Address: "127.0.0.1:0"},
		Admin:    server.Admin{Address: "127.0.0.1:0"},
		Requests: server.Requests{Bounds: decide.Bounds{Descriptors: 100, Entries: 32, Bytes: 65536, Takes: 1000}, Refunds: true},
		Live:     d.live,
		Store:    memory(d.t, d.clock),
		Hits:     decide.HitCounting{NearRatio: 0.8},
		Metrics:  prometheus.NewRegistry(),
		Log:      logger,
		Now:      d.clock.Time,
		Version:  "v0.0.0-test",
	}
}

// memory returns a memory store on the clock.
func memory(t testing.TB, c *asynctest.Clock) bucket.Store {
	s := memstore.New(memstore.Options{MaxKeys: 100_000, Clock: c.Micros})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func (d *daemon) dial(o ...grpc.DialOption) {
	d.t.Helper()
	conn, err := grpc.NewClient(d.srv.Address("grpc"), o...)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = conn.Close() })
	d.conn, d.rls, d.health = conn, rlsv3.NewRateLimitServiceClient(conn), healthpb.NewHealthClient(conn)
}

// end stops the server at once, if it runs, and waits for it.
func (d *daemon) end() {
	_ = d.conn.Close()
	d.client.CloseIdleConnections()
	select {
	case d.stop <- 0:
	case <-d.ended:
	}
	d.wait()
}

// wait waits until Run has returned without an error.
func (d *daemon) wait() {
	select {
	case <-d.ended:
		if d.err != nil {
			d.t.Errorf("Run: %v", d.err)
		}
	case <-time.After(patience):
		d.t.Error("Run does not return")
	}
}

// write replaces the limits file.
func (d *daemon) write(limits string) {
	d.t.Helper()
	if err := os.WriteFile(d.file, []byte(limits), 0o644); err != nil {
		d.t.Fatal(err)
	}
}

// ask asks about descriptors such as "user=alice,plan=free". It fails the test
// if there is no answer.
func (d *daemon) ask(domain string, cost uint32, descriptors ...string) *rlsv3.RateLimitResponse {
	d.t.Helper()
	return d.send(request(domain, cost, descriptors...))
}

func (d *daemon) send(r *rlsv3.RateLimitRequest) *rlsv3.RateLimitResponse {
	d.t.Helper()
	response, err := d.try(r)
	if err != nil {
		d.t.Fatal(err)
	}
	return response
}

func (d *daemon) try(r *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return d.rls.ShouldRateLimit(ctx, r)
}

// check returns the health of a service, or the error of asking.
func (d *daemon) check(service string) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	h, err := d.health.Check(ctx, &healthpb.HealthCheckRequest{Service: service})
	if err != nil {
		return err.Error()
	}
	return h.GetStatus().String()
}

// page is the answer of a port.
type page struct {
	code   int
	body   string
	header http.Header
}

// get gets a page from the port http or admin.
func (d *daemon) get(port, path string) page {
	d.t.Helper()
	return d.fetch(http.MethodGet, port, path, nil)
}

// post posts to /json.
func (d *daemon) post(body string) page {
	d.t.Helper()
	return d.fetch(http.MethodPost, "http", "/json", strings.NewReader(body))
}

func (d *daemon) fetch(method, port, path string, body io.Reader) page {
	d.t.Helper()
	p, err := d.tryFetch(method, port, path, body)
	if err != nil {
		d.t.Fatal(err)
	}
	return p
}

func (d *daemon) tryFetch(method, port, path string, body io.Reader) (page, error) {
	r, err := http.NewRequest(method, "http://"+d.srv.Address(port)+path, body)
	if err != nil {
		return page{}, err
	}
	response, err := d.client.Do(r)
	if err != nil {
		return page{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return page{response.StatusCode, string(text), response.Header}, err
}

// request makes a request; cost 0 leaves hits_addend unset.
func request(domain string, cost uint32, descriptors ...string) *rlsv3.RateLimitRequest {
	r := &rlsv3.RateLimitRequest{Domain: domain, HitsAddend: cost}
	for _, text := range descriptors {
		d := &ratelimitv3.RateLimitDescriptor{}
		for _, part := range strings.Split(text, ",") {
			if k, v, ok := strings.Cut(part, "="); ok {
				d.Entries = append(d.Entries, entry(k, v))
			}
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

func entry(key, value string) *ratelimitv3.RateLimitDescriptor_Entry {
	return &ratelimitv3.RateLimitDescriptor_Entry{Key: key, Value: value}
}

func toJSON(t testing.TB, r *rlsv3.RateLimitRequest) string {
	t.Helper()
	text, err := protojson.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// show writes a response so that a table can hold it: the overall code, then
// each status as "CODE name requests/UNIT remaining N reset S", with UNIT as 90xSECOND
// if it has a multiplier.
func show(r *rlsv3.RateLimitResponse) string {
	parts := []string{r.GetOverallCode().String()}
	for _, s := range r.GetStatuses() {
		text := s.GetCode().String()
		if l := s.GetCurrentLimit(); l != nil {
			text += fmt.Sprintf(" %s %d/", l.GetName(), l.GetRequestsPerUnit())
			if m := l.GetUnitMultiplier(); m != nil {
				text += fmt.Sprintf("%dx", m.GetValue())
			}
			text += l.GetUnit().String()
		}
		text += fmt.Sprintf(" remaining %d", s.GetLimitRemaining())
		if reset := s.GetDurationUntilReset(); reset != nil {
			text += " reset " + reset.AsDuration().String()
		}
		parts = append(parts, text)
	}
	for _, h := range r.GetResponseHeadersToAdd() {
		parts = append(parts, h.GetKey()+": "+h.GetValue())
	}
	return strings.Join(parts, "; ")
}

func wantShown(t testing.TB, r *rlsv3.RateLimitResponse, want string) {
	t.Helper()
	if got := show(r); got != want {
		t.Errorf("response:\n got %s\nwant %s", got, want)
	}
}

// fakeStore allows everything unless a test sets take.
type fakeStore struct {
	take func(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error
	ping func(ctx context.Context) error
}

func (f *fakeStore) Take(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	if f.take == nil {
		return nil
	}
	return f.take(ctx, hits, decisions)
}

func (f *fakeStore) Check(context.Context, []bucket.Hit, []bucket.Decision) error { return nil }

func (f *fakeStore) GiveBack(context.Context, []bucket.Hit, []bucket.Decision) error { return nil }

func (f *fakeStore) Locate(h *bucket.Hit) bucket.Location { return bucket.Location{Key: string(h.Key)} }

func (f *fakeStore) Forget([]string) {}

func (f *fakeStore) Ping(ctx context.Context) error {
	if f.ping == nil {
		return nil
	}
	return f.ping(ctx)
}

func (f *fakeStore) Close() error { return nil }

// on has a server use the store.
func on(s bucket.Store) func(*server.Options) {
	return func(o *server.Options) { o.Store = s }
}
