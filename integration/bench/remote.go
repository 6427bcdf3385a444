package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"regexp"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
)

// callersCommand is the hidden command under which this program is one of the processes
// whose callers ask through the Go client: each process has leases of its own.
const callersCommand = "serve-callers"

// callerProcesses is how many processes share a row's callers.
const callerProcesses = 8

// hidden are the commands under which this program starts itself.
var hidden = map[string]func(stdout io.Writer) error{
	bareCommand:      func(stdout io.Writer) error { return serveBare(false, stdout) },
	bareTunedCommand: func(stdout io.Writer) error { return serveBare(true, stdout) },
	callersCommand:   serveCallers,
}

// serveCallers serves on a free port, which it prints first, until it is killed. Each
// connection has callers of its own.
func serveCallers(stdout io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "serving at=%s\n", l.Addr())
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			c, s := new(callers), rpc.NewServer()
			_ = s.RegisterName("Callers", c) // its one method is as it must be
			s.ServeConn(conn)
			c.close()
		}()
	}
}

// Turn is a slice of load of a usual row, for one of the processes.
type Turn struct {
	Row, Address string // of the daemon
	Process      int    // from 0
	Warm, Length time.Duration
	Rate         float64
}

// Counts are what the callers of a process got in a turn.
type Counts struct {
	Rate                      float64 // while it was measured
	OK, Over, Failed, Dropped int64
	Failure                   string // the last
	Latency                   []uint32
}

// callers are those of one process for one row.
type callers struct {
	client  *client.Client
	subject *subject // nil before the first turn
}

func (cs *callers) open(t Turn) error {
	r := selectRows(usualRows(), regexp.MustCompile("^"+t.Row+"$"))[0][0]
	options := []client.Option{client.Timeout(hung)}
	if r.load.door == unleasedDoor {
		options = append(options, client.WithoutLeases())
	}
	var err error
	if cs.client, err = client.New(t.Address, options...); err != nil {
		return err
	}
	l, first := r.load, 0
	if l.isApart {
		l.population /= callerProcesses
		first = t.Process * l.population
	} else if l.population == 1 {
		l.hot, first = 0, l.hot
	}
	values := make([]string, l.population)
	for i := range values {
		values[i] = value(first + i)
	}
	cs.subject = &subject{row: r, since: time.Now()}
	n := l.callers / callerProcesses
	for i := range n {
		c := newCaller(nil, l, uint64(t.Process*n+i))
		c.client, c.key, c.values = cs.client, l.key, values
		cs.subject.callers = append(cs.subject.callers, c)
	}
	return nil
}

func (cs *callers) close() {
	if cs.client != nil {
		_ = cs.client.Close()
	}
}

// Slice lets the callers ask for one turn.
func (cs *callers) Slice(t Turn, got *Counts) error {
	if cs.subject == nil {
		if err := cs.open(t); err != nil {
			return err
		}
	}
	s := cs.subject
	m, err := s.slice(context.Background(), t.Warm, t.Length, t.Rate)
	if err != nil {
		return err
	}
	*got = Counts{Rate: m.rate, Dropped: s.dropped.Swap(0)}
	var all histogram
	for _, c := range s.callers {
		got.OK += c.tally.ok.Swap(0)
		got.Over += c.tally.over.Swap(0)
		got.Failed += c.tally.failed.Swap(0)
		if err := c.tally.failure.Load(); err != nil {
			got.Failure = (*err).Error()
		}
		all.add(&c.latency)
	}
	got.Latency = all.buckets[:]
	return nil
}

// allow asks through the Go client.
func (c *caller) allow(ctx context.Context) error {
	allowed, err := c.client.Allow(ctx, domain, client.E(c.key, c.values[c.pick()]))
	switch {
	case err != nil:
	case allowed:
		c.tally.ok.Add(1)
	default:
		c.tally.over.Add(1)
	}
	return err
}

// remote is a process of callers, as the subject that they load sees it.
type remote struct {
	*rpc.Client
	process *process
	rate    float64 // in the last slice
}

// remoteSubject returns a daemon's subject whose callers are in other processes.
func (l *lab) remoteSubject(ctx context.Context, d *daemon, r row) (*subject, error) {
	for len(l.callers) < callerProcesses {
		p, at, err := startSelf(ctx, callersCommand)
		if err != nil {
			return nil, err
		}
		l.callers, l.callersAt = append(l.callers, p), append(l.callersAt, at)
	}
	s := &subject{name: nameDaemon, row: r, pid: d.process.pid(), redis: d.redis, daemon: d, since: time.Now()}
	for i, p := range l.callers {
		conn, err := rpc.Dial("tcp", l.callersAt[i])
		if err != nil {
			s.close()
			return nil, err
		}
		s.remotes = append(s.remotes, &remote{Client: conn, process: p})
		s.callers = append(s.callers, new(caller)) // counts for all of the process
	}
	return s, nil
}

// runRemotes lets all processes have a turn; their counts come at its end.
func (s *subject) runRemotes(warm, length time.Duration, rate float64) *sync.WaitGroup {
	var all sync.WaitGroup
	for i, r := range s.remotes {
		t := Turn{
			Row: s.row.name, Address: s.daemon.grpc, Process: i, Rate: rate / float64(len(s.remotes)),
			// Longer, so that they still ask when this process takes its readings.
			Warm: warm, Length: length + warm,
		}
		c := s.callers[i]
		all.Go(func() {
			var got Counts
			err := r.Call("Callers.Slice", t, &got)
			if err != nil {
				got.Failed++
			} else if got.Failure != "" {
				err = errors.New(got.Failure)
			}
			if err != nil {
				c.tally.failure.Store(&err)
			}
			r.rate = got.Rate
			c.tally.ok.Add(got.OK)
			c.tally.over.Add(got.Over)
			c.tally.failed.Add(got.Failed)
			copy(c.latency.buckets[:], got.Latency)
			s.dropped.Add(got.Dropped)
		})
	}
	return &all
}

// remoteRate is how many answers a second the processes got in the last slice, each by
// its own clock: they neither begin nor end at the same moment.
func (s *subject) remoteRate() (rate float64) {
	for _, r := range s.remotes {
		rate += r.rate
	}
	return rate
}
