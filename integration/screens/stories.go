package main

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/deploy"
)

// screen is a picture of a terminal.
type screen struct {
	name, title string
	// files are in the folder root of an embedded one: the limits, and what commands read.
	files embed.FS
	root  string
	// story makes something happen, and returns the commands that show it.
	story func(context.Context, *daemon) ([]typed, error)
}

// own has the files of two screens: the limits of the page about steering, and those
// before and after a replay.
//
//go:embed explain replay
var own embed.FS

var shown = []screen{
	{name: "explain", title: "ratelimitd explain: a customer on the plan pro is denied, and the tree says why.", files: own, root: "explain", story: explain},
	{name: "top", title: "ratelimitd top: who is denied most in all domains, and which customers use most.", files: deploy.Limits, root: ".", story: overLimits},
	{name: "replay", title: "ratelimitd replay: what proposed limits would have done to recorded requests.", files: own, root: "replay", story: replay},
}

// typed returns the commands of a screen, with what they print.
func (s screen) typed(ctx context.Context) (all []typed, err error) {
	files, err := fs.Sub(s.files, s.root)
	if err != nil {
		return nil, err
	}
	d, err := startDaemon(files, first)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	return s.story(ctx, d)
}

// first is the moment at which each story begins.
var first = time.Date(2026, 6, 23, 9, 0, 0, 0, time.UTC)

// load is requests for one subject, at regular intervals. Its times are since the first
// moment of all loads.
type load struct {
	domain, subject      string
	cost                 uint64
	begins, every, until time.Duration
}

// send sends loads together, each request at its moment.
func (d *daemon) send(ctx context.Context, loads ...load) error {
	type request struct {
		at time.Duration
		of load
	}
	var all []request
	for _, l := range loads {
		for at := l.begins; at < l.until; at += l.every {
			all = append(all, request{at: at, of: l})
		}
	}
	slices.SortStableFunc(all, func(a, b request) int { return cmp.Compare(a.at, b.at) })
	begun := d.now.Load()
	for _, r := range all {
		d.now.Store(begun + r.at.Microseconds())
		if err := d.take(ctx, r.of.domain, r.of.subject, r.of.cost); err != nil {
			return err
		}
	}
	return nil
}

// commands runs command lines.
func (d *daemon) commands(ctx context.Context, lines ...string) (all []typed, err error) {
	for _, line := range lines {
		t, err := d.command(ctx, strings.Fields(line)...)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// explain has a customer use up the month of a plan with two limits.
func explain(ctx context.Context, d *daemon) ([]typed, error) {
	// What the plan admits in a month takes hours at its limit a second, or one request
	// with another number for that.
	if _, err := d.commands(ctx, "ratelimitd assign --domain api tenant=acme --plan pro --limit second=1000000/1s"); err != nil {
		return nil, err
	}
	if err := d.take(ctx, "api", "tenant=acme", 1_000_000); err != nil {
		return nil, err
	}
	again := strings.Fields("ratelimitd assign --domain api tenant=acme --only --plan pro --reason")
	if _, err := d.command(ctx, append(again, "contract 4711")...); err != nil {
		return nil, err
	}
	d.wait(time.Hour)
	return d.commands(ctx, "ratelimitd explain --domain api tenant=acme")
}

// overLimits has several go over limits, and one come near, in a minute that is not over.
func overLimits(ctx context.Context, d *daemon) ([]typed, error) {
	if _, err := d.commands(ctx, "ratelimitd assign --domain api tenant=initech --plan pro"); err != nil {
		return nil, err
	}
	const length = 52 * time.Second
	err := d.send(ctx,
		load{domain: "api", subject: "tenant=mallory", cost: 200, every: 200 * time.Millisecond, until: length},
		load{domain: "api", subject: "tenant=initech", cost: 30, every: 400 * time.Millisecond, until: length},
		load{domain: "api", subject: "tenant=globex", cost: 170, every: time.Second, until: length},
		load{domain: "api", subject: "tenant=acme", cost: 20, every: time.Second, until: length},
		load{domain: "api", subject: "user=crawler", cost: 1, every: 250 * time.Millisecond, until: length},
		load{domain: "api", subject: "user=alice", cost: 1, every: 2 * time.Second, until: length},
		load{domain: "login", subject: "account=root", cost: 1, every: time.Second, until: length},
	)
	if err != nil {
		return nil, err
	}
	all, err := d.commands(ctx, "ratelimitd top", "ratelimitd top api tenant --by used --limit 3")
	// Windows go by the clock of the process, which nobody can set: this one has what was
	// sent in a moment, and says so.
	span := regexp.MustCompile(`\([^)]+ of it so far\)`)
	for i := range all {
		all[i].printed = span.ReplaceAllString(all[i].printed, fmt.Sprintf("(%s of it so far)", length))
	}
	return all, err
}

// replay records ten minutes under the present limits, in which some send bursts, and
// one just less than is denied. It replays that under the proposed ones.
func replay(ctx context.Context, d *daemon) ([]typed, error) {
	const length = 10 * time.Minute
	burst := func(subject string, begins, every time.Duration, n int) load {
		return load{domain: "api", subject: subject, cost: 1, begins: begins, every: every, until: begins + time.Duration(n)*every}
	}
	err := d.send(ctx,
		load{domain: "api", subject: "user=mallory", cost: 1, every: 1100 * time.Millisecond, until: length},
		load{domain: "api", subject: "user=carol", cost: 1, begins: time.Second, every: 6 * time.Second, until: length},
		burst("user=alice", time.Minute, 50*time.Millisecond, 90),
		burst("user=bob", 3*time.Minute, 20*time.Millisecond, 75),
		burst("user=dave", 5*time.Minute, 50*time.Millisecond, 200),
		burst("user=alice", 8*time.Minute, 50*time.Millisecond, 110),
	)
	if err != nil {
		return nil, err
	}
	if err := d.stop(); err != nil { // which writes the rest of the log
		return nil, err
	}
	return d.commands(ctx, "ratelimitd replay --limits new/ "+logFile)
}
