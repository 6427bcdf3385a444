package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// maxConnections bounds the connections of a load, as if a proxy had as many workers.
// From one to eight, a request costs the generator the same.
const maxConnections = 8

// Names of subjects.
const (
	nameDaemon = "daemon"
	nameBare   = "bare"
	nameTuned  = "bare tuned"
)

// subject is a server under the load of one row.
type subject struct {
	name    string // one of the names above, or that of a comparison
	row     row
	pid     int           // 0 if it is not known
	redis   *redisServers // nil if there is none
	conns   []*grpc.ClientConn
	callers []*caller
	remotes []*remote // whose callers ask instead, and are counted as one of the above each
	daemon  *daemon   // that counts its requests; nil: they are not counted
	slices  []measures
	since   time.Time    // when it got its first request, or before
	assign  *assigner    // changes assignments meanwhile; nil: nobody does
	dropped atomic.Int64 // arrivals of an open loop that were not sent
}

func newSubject(name, address string, pid int, redis *redisServers, r row) (*subject, error) {
	s := &subject{name: name, row: r, pid: pid, redis: redis, since: time.Now()}
	for range min(r.load.callers, maxConnections) {
		conn, err := dial(address)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		s.conns = append(s.conns, conn)
	}
	for i := range r.load.callers {
		s.callers = append(s.callers, newCaller(s.conns[i%len(s.conns)], r.load, uint64(i)))
	}
	return s, nil
}

func dial(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithIdleTimeout(0))
}

func (s *subject) close() {
	for _, c := range s.conns {
		c.Close()
	}
	for _, r := range s.remotes {
		r.Close()
	}
}

// answers are all that the callers ever got.
func (s *subject) answers() (n int64) {
	for _, c := range s.callers {
		n += c.tally.answers()
	}
	return n
}

// reading is what was done, and what was used for it, up to a moment.
type reading struct {
	at       time.Time
	answers  int64
	asks     int64 // requests that the daemon counted
	cpu, own time.Duration
}

func (s *subject) read(ctx context.Context) (r reading, err error) {
	if s.daemon != nil {
		if r.asks, err = s.daemon.asks(ctx); err != nil {
			return r, err
		}
	}
	if s.pid != 0 {
		if r.cpu, err = cpuTime(s.pid); err != nil {
			return r, err
		}
	}
	if r.own, err = cpuTime(os.Getpid()); err != nil {
		return r, err
	}
	for _, remote := range s.remotes {
		used, err := cpuTime(remote.process.pid())
		if err != nil {
			return r, err
		}
		r.own += used
	}
	r.answers, r.at = s.answers(), time.Now()
	return r, nil
}

// hung is how long callers may take to end after their slice.
const hung = 20 * time.Second

// slice loads the server, first for warm without measuring, and then for length. rate is
// that of an open loop, or 0. Redis is read before and after, while nothing is in flight,
// so that its calls are exactly those for the answers counted.
func (s *subject) slice(ctx context.Context, warm, length time.Duration, rate float64) (m measures, err error) {
	for _, c := range s.callers {
		c.latency = histogram{}
	}
	store, err := s.readStore(ctx)
	if err != nil {
		return m, err
	}
	var stage atomic.Int32
	var all *sync.WaitGroup
	if len(s.remotes) > 0 {
		all = s.runRemotes(warm, length, rate)
	} else {
		all = s.run(&stage, rate, 0)
	}
	end := func() { // ends the callers, even those whose server hangs
		stage.Store(ending)
		cut := time.AfterFunc(hung, s.close)
		all.Wait()
		cut.Stop()
	}
	defer end()
	if s.assign != nil {
		changing, stop := context.WithCancel(ctx)
		var changed errgroup.Group
		changed.Go(func() error { return s.assign.keepChanging(changing) })
		defer func() {
			stop()
			if failed := changed.Wait(); err == nil {
				err = failed
			}
		}()
	}

	if err := wait(ctx, warm); err != nil {
		return m, err
	}
	before, err := s.read(ctx)
	if err != nil {
		return m, err
	}
	stage.Store(measuring)
	if err := wait(ctx, length); err != nil {
		return m, err
	}
	stage.Store(ending)
	after, err := s.read(ctx)
	if err != nil {
		return m, err
	}
	end()
	if len(s.remotes) > 0 { // their counts come at the end
		after.answers = before.answers + int64(s.remoteRate()*after.at.Sub(before.at).Seconds())
	}
	storeAfter, err := s.readStore(ctx)
	if err != nil {
		return m, err
	}
	return s.measure(before, after, store, storeAfter), nil
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// storeReading is a Redis's reading and the answers that had been given by
// then.
type storeReading struct {
	redisReading
	answers int64
}

func (s *subject) readStore(ctx context.Context) (r storeReading, err error) {
	if s.redis == nil {
		return r, nil
	}
	r.redisReading, err = s.redis.read(ctx)
	r.answers = s.answers()
	return r, err
}

// comparison is a server that somebody else runs.
type comparison struct {
	name, address string
	pid           int // 0: its processor time is not known
}

// comparisons is the flag -compare, which may be given several times.
type comparisons []comparison

func (c *comparisons) String() string { return "" }

// Set reads NAME=HOST:PORT[,PID].
func (c *comparisons) Set(text string) error {
	const allowed = "NAME=HOST:PORT, or NAME=HOST:PORT,PID"
	name, rest, ok := strings.Cut(text, "=")
	address, pid, hasPID := strings.Cut(rest, ",")
	if _, _, err := net.SplitHostPort(address); !ok || name == "" || err != nil {
		return fmt.Errorf("found %q; allowed: %s", text, allowed)
	}
	one := comparison{name: name, address: address}
	if hasPID {
		n, err := strconv.Atoi(pid)
		if err != nil || n < 1 {
			return fmt.Errorf("found the process id %q; allowed: %s", pid, allowed)
		}
		one.pid = n
	}
	*c = append(*c, one)
	return nil
}
