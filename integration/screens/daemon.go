package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/filestore"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog/sink"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/record"
	"github.com/ratelimitd/ratelimitd/internal/top"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

const (
	// limitsFolder and logFile are in the daemon's folder, where commands run.
	limitsFolder = "limits"
	logFile      = "decisions.jsonl"
	// operator is who runs the commands; a screen may name it.
	operator = "billing"
)

// daemon is a server with a store in memory, on a clock that only its caller moves: that
// of internal/daemon would go by the wall clock. It records all requests.
type daemon struct {
	folder string
	token  string       // for commands
	now    atomic.Int64 // in microseconds since 1970
	server *server.Server
	client ratelimitv1.RateLimitServiceClient
	// closing ends the parts, in the order in which they were opened.
	closing []func() error
}

// startDaemon starts one at a moment, in a copy of some files, among them its limits.
func startDaemon(files fs.FS, now time.Time) (*daemon, error) {
	folder, err := os.MkdirTemp("", "screens-")
	if err != nil {
		return nil, err
	}
	d := &daemon{folder: folder}
	d.now.Store(now.UnixMicro())
	if err = os.CopyFS(folder, files); err == nil {
		err = d.serve()
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// serve opens all parts of the daemon.
func (d *daemon) serve() error {
	o := server.Options{
		GRPC:     server.GRPC{Address: "127.0.0.1:0"},
		Admin:    server.Admin{Address: "127.0.0.1:0"},
		Requests: server.Requests{Bounds: decide.Bounds{Descriptors: 10, Entries: 10, Bytes: 10_000, Takes: 128}},
		Tops:     decide.Tops{Denied: true, Used: true, Budget: top.NewBudget(64 << 20)},
		Metrics:  prometheus.NewRegistry(),
		Log:      slog.New(slog.DiscardHandler),
		Now:      func() time.Time { return time.UnixMicro(d.now.Load()) },
	}
	for _, open := range []func(*server.Options) error{d.openLimits, d.openStores, d.openMembers} {
		if err := open(&o); err != nil {
			return err
		}
	}
	var err error
	if d.server, err = server.New(o); err != nil {
		return err
	}
	stop, ended := make(chan time.Duration), make(chan error, 1)
	go func() { ended <- d.server.Run(stop) }()
	d.onClose(func() error {
		stop <- 0
		return <-ended
	})
	conn, err := grpc.NewClient(d.server.Address("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	d.onClose(conn.Close)
	d.client = ratelimitv1.NewRateLimitServiceClient(conn)
	return nil
}

// openLimits loads the limits, and opens the log of decisions, which begins with them.
func (d *daemon) openLimits(o *server.Options) error {
	lines := sink.NewLines(o.Metrics, "lines_total", "Lines of the log of decisions.")
	log, err := sink.Open(sink.Options{
		Path: filepath.Join(d.folder, logFile), Keep: 1, Buffer: 64 << 20, Settings: new(decisionlog.Settings), Counts: sink.NewCounts(lines), Log: o.Log,
	})
	if err != nil {
		return err
	}
	d.onClose(func() error {
		log.Close()
		return nil
	})
	o.Recorder = record.New(record.Options{Sinks: []record.Sink{log}, Allowed: 1, Denied: 1, Now: d.now.Load, Thinned: lines.WithLabelValues("thinned")})
	announce := func(r *rules.Set, texts []limitsfile.Text) {
		var files []decisionlog.File
		for _, t := range texts {
			files = append(files, decisionlog.File{Name: t.Name, Text: t.Text})
		}
		log.Announce(r.Fingerprint(), files)
	}
	o.Live = limitsfile.Options{Clock: d.now.Load, Announce: announce}.NewLive(limitsFolder, o.Log)
	return d.inFolder(o.Live.Reload) // explain shows the path, which is the same in every run
}

// openStores opens the store of limits' states, and that of assignments.
func (d *daemon) openStores(o *server.Options) error {
	memory := memstore.New(memstore.Options{MaxKeys: 1000, Clock: d.now.Load, Ordered: true})
	d.onClose(memory.Close)
	assignments, err := filestore.Open(filestore.Options{Clock: d.now.Load, Hooks: assign.Hooks{
		Forget: memory.Forget, Counted: memory.Counted,
	}})
	if err != nil {
		return err
	}
	d.onClose(assignments.Close)
	o.Store, o.Admin.Assignments, o.Assigned = memory, assignments, assignments.Table()
	return nil
}

// openMembers makes the token for the commands.
func (d *daemon) openMembers(o *server.Options) error {
	path := filepath.Join(d.folder, "tokens.yaml")
	none, err := access.ReadTokensText(path, nil)
	if err != nil {
		return err
	}
	token, digest := access.NewToken()
	text, err := none.Add(operator, access.Operator, digest)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	d.token, o.Admin.Members = token, access.NewLiveMembers(path, o.Log)
	return o.Admin.Members.Reload()
}

// inFolder calls a function while the daemon's folder is the current one.
func (d *daemon) inFolder(do func() error) error {
	before, err := os.Getwd()
	if err != nil {
		return err
	}
	if err := os.Chdir(d.folder); err != nil {
		return err
	}
	return errors.Join(do(), os.Chdir(before))
}

// onClose adds what ends a part. Parts that are opened later end earlier.
func (d *daemon) onClose(end func() error) { d.closing = append(d.closing, end) }

// stop ends the daemon, whose folder stays.
func (d *daemon) stop() (err error) {
	for _, end := range slices.Backward(d.closing) {
		err = errors.Join(err, end())
	}
	d.closing = nil
	return err
}

// close ends the daemon, and removes its folder.
func (d *daemon) close() error { return errors.Join(d.stop(), os.RemoveAll(d.folder)) }

// wait moves the clock.
func (d *daemon) wait(span time.Duration) { d.now.Add(span.Microseconds()) }

// take asks once for a descriptor, such as "tenant=acme".
func (d *daemon) take(ctx context.Context, domain, descriptor string, cost uint64) error {
	r, err := assigntext.ParseTake(domain, []string{descriptor})
	if err != nil {
		return err
	}
	r.Descriptors[0].Cost = &cost
	_, err = d.client.Take(ctx, r)
	return err
}

// command runs a command line, whose first word is the program, in the daemon's folder.
func (d *daemon) command(ctx context.Context, words ...string) (typed, error) {
	self, err := os.Executable()
	if err != nil {
		return typed{}, err
	}
	cmd := exec.CommandContext(ctx, self, words...)
	cmd.Dir = d.folder
	// Nothing else is in the environment: settings of whoever draws this do not count. With
	// the race detector each command would wait a second at its end.
	cmd.Env = []string{
		"TZ=UTC", fmt.Sprint("COLUMNS=", columns), "GORACE=atexit_sleep_ms=0",
		"RATELIMITD_ADMIN_ADDRESS=" + d.server.Address("admin"), dial.TokenVariable + "=" + d.token,
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	line := strings.Join(words, " ")
	if err == nil && stderr.Len() > 0 {
		err = errors.New("it warns")
	}
	if err != nil {
		return typed{}, fmt.Errorf("%s: %w: %s%s", line, err, out, stderr.String())
	}
	return typed{line: line, printed: string(out)}, nil
}
