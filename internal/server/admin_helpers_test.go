package server_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/filestore"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// assignments is a store of assignments in memory, which a test can have fail.
type assignments struct {
	*filestore.Store
	t testing.TB

	// fails has Apply and Records fail, and failsAfter Records after the first.
	fails, failsAfter bool
	// pending are the daemons that do not have changes in force.
	pending []string
	// old are daemons that cannot read any change.
	old []string

	watches atomic.Int32
	// refusal, if it is set, is why all changes are refused, and lacks for how long there
	// may be daemons that are not known. most is what the last change was given.
	refusal error
	lacks   time.Duration
	most    atomic.Pointer[[]assign.MaxWait]
	// held, if it is set, holds up Reset until it is closed, and resets counts those that
	// it holds up.
	held   chan struct{}
	resets atomic.Int32
	// server are the options of the server that has it, with its clock and states.
	server atomic.Pointer[server.Options]
}

func newAssignments(t testing.TB) *assignments {
	t.Helper()
	f := &assignments{t: t}
	var err error
	f.Store, err = filestore.Open(filestore.Options{
		Clock: func() int64 { return f.server.Load().Now().UnixMicro() },
		Hooks: assign.Hooks{
			Forget:  func(keys []string) { f.server.Load().Store.Forget(keys) },
			Counted: func(keys []string) int { return f.server.Load().Store.(*memstore.Store).Counted(keys) },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

var errAway = errors.New("the store is away")

func (f *assignments) Apply(ctx context.Context, changes []assign.Change, most ...assign.MaxWait) (assign.Applied, error) {
	f.most.Store(&most)
	if f.fails {
		return assign.Applied{}, errAway
	}
	if f.refusal != nil {
		applied := assign.Applied{Results: make([]assign.Result, len(changes))}
		for i := range changes {
			applied.Results[i] = assign.Result{Outcome: assign.Failed, Err: f.refusal, Passes: true}
		}
		return applied, errAway
	}
	if f.old != nil {
		applied := assign.Applied{Results: make([]assign.Result, len(changes)), Old: f.old}
		for i := range changes {
			applied.Results[i].Outcome = assign.NeedsParts
		}
		return applied, nil
	}
	applied, err := f.Store.Apply(ctx, changes)
	applied.Pending, applied.Lacks = f.pending, f.lacks
	return applied, err
}

func (f *assignments) Records(ctx context.Context, q assign.RecordQuery) ([]assign.Record, string, error) {
	if f.fails || f.failsAfter && q.After != "" {
		return nil, "", errAway
	}
	return f.Store.Records(ctx, q)
}

func (f *assignments) Reset(ctx context.Context, r assign.Reset, most ...assign.MaxWait) (assign.Forgotten, error) {
	f.most.Store(&most)
	if f.fails {
		return assign.Forgotten{}, errAway
	}
	if f.refusal != nil {
		return assign.Forgotten{}, f.refusal
	}
	if f.held != nil {
		f.resets.Add(1)
		select {
		case <-f.held:
		case <-ctx.Done():
		}
	}
	done, err := f.Store.Reset(ctx, r)
	done.Reached = assign.Reached{Pending: f.pending, Lacks: f.lacks}
	return done, err
}

func (f *assignments) Watch(ctx context.Context, tell func(assign.Record) bool) error {
	f.watches.Add(1)
	defer f.watches.Add(-1)
	return f.Store.Watch(ctx, tell)
}

// put makes a change.
func (f *assignments) put(c assign.Change) {
	f.t.Helper()
	applied, err := f.Store.Apply(context.Background(), []assign.Change{c})
	if err != nil || applied.Results[0].Outcome == assign.Unknown {
		f.t.Error(err)
	}
}

// blocking is the change that blocks a user of the domain api.
func blocking(user string) assign.Change {
	return assign.Change{Assignment: assign.Assignment{
		Subject: assign.Subject{Domain: "api", Entries: []bucket.Entry{{Key: "user", Value: user}}},
		Terms:   assign.Terms{Blocked: true},
		Reason:  strings.Repeat("r", assign.MaxText),
	}}
}

func (f *assignments) block(user string) {
	f.t.Helper()
	f.put(blocking(user))
}

// recorded returns the records of all changes, the newest first.
func (f *assignments) recorded() []assign.Record {
	f.t.Helper()
	all, _, err := f.Store.Records(context.Background(), assign.RecordQuery{Max: 1_000_000})
	if err != nil {
		f.t.Fatal(err)
	}
	return all
}

// withAssignments has a server keep assignments.
func withAssignments(f *assignments) func(*server.Options) {
	return func(o *server.Options) {
		o.Admin.Assignments, o.Assigned = f, f.Table()
		f.server.Store(o)
	}
}

// someMembers are those of the tokens view, help and run.
func someMembers() string {
	return "- {name: viewer-1, role: viewer, sha256: " + sumOf("view") + "}\n" +
		"- {name: support-1, role: support, sha256: " + sumOf("help") + "}\n" +
		"- {name: operator-1, role: operator, sha256: " + sumOf("run") + "}\n"
}

// withMembers has a server know the callers of the admin API by a file.
func withMembers(t testing.TB, text string) (func(*server.Options), *access.LiveMembers, string) {
	t.Helper()
	path := filetest.Write(t, t.TempDir(), "tokens.yaml", text)
	live := access.NewLiveMembers(path, slog.New(slog.DiscardHandler))
	if err := live.Reload(); err != nil {
		t.Fatal(err)
	}
	return func(o *server.Options) { o.Admin.Members = live }, live, path
}

// admin returns a client of the admin API, with TLS if it is given any.
func (d *daemon) admin(c *tls.Config) adminv1.AdminServiceClient {
	d.t.Helper()
	security := insecure.NewCredentials()
	if c != nil {
		security = credentials.NewTLS(c)
	}
	conn, err := grpc.NewClient(d.srv.Address("admin"), grpc.WithTransportCredentials(security))
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { conn.Close() })
	return adminv1.NewAdminServiceClient(conn)
}

// ask asks the admin API in JSON. headers are names and values.
func (d *daemon) askAdmin(method, path, token, body string, headers ...string) page {
	d.t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	r, err := http.NewRequest(method, "http://"+d.srv.Address("admin")+"/admin/v1"+path, in)
	if err != nil {
		d.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := d.client.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return page{response.StatusCode, string(text), response.Header}
}

// getAs gets a page as one of a host, with a token if it is not empty.
func (d *daemon) getAs(port, path, host, token string) page {
	d.t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://"+d.srv.Address(port)+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	r.Host = host
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := d.client.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return page{response.StatusCode, string(text), response.Header}
}

// watchAs watches assignments in JSON, and returns the lines.
func (d *daemon) watchAs(ctx context.Context, token string) io.Reader {
	d.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.srv.Address("admin")+"/admin/v1/assignments/watch", nil)
	if err != nil {
		d.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := d.client.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		d.t.Fatalf("the watch: %s", response.Status)
	}
	return response.Body
}
