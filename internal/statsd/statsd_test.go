package statsd_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/statsd"
	"github.com/ratelimitd/ratelimitd/internal/statsd/statsdtest"
)

// book has sums that are sent.
type book map[string]*[2]uint64 // the sum, and what of it was sent

func (b book) add(name string, n uint64) {
	if b[name] == nil {
		b[name] = new([2]uint64)
	}
	b[name][0] += n
}

func (b book) counts() iter.Seq[statsd.Count] {
	return func(yield func(statsd.Count) bool) {
		for name, c := range b {
			if !yield(statsd.Count{Name: []byte(name), Total: c[0], Sent: &c[1]}) {
				return
			}
		}
	}
}

func sender(o statsd.Options) (*statsd.Sender, *bytes.Buffer) {
	var log bytes.Buffer
	o.Log, o.Now = slog.New(slog.NewTextHandler(&log, nil)), time.Now
	return statsd.New(o), &log
}

// Over both protocols, the increments that arrive add up to the counts.
func TestIncrementsAddUp(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"udp", "tcp"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			server := statsdtest.ListenUDP(t)
			if network == "tcp" {
				server = statsdtest.ListenTCP(t, "127.0.0.1:0")
			}
			s, log := sender(statsd.Options{Network: network, Address: server.Address})
			b := book{}
			for round := range 3 {
				for i := range 100 {
					b.add(fmt.Sprintf("a.name.that.is.not.short.%d.total_hits", i), uint64(i*round))
				}
				s.Send(t.Context(), b.counts())
			}
			want := make(map[string]uint64)
			for name, c := range b {
				if c[0] > 0 {
					want[name] = c[0]
				}
			}
			asynctest.Eventually(t, "all increments arrive", func() bool { return fmt.Sprint(server.Sums(t)) == fmt.Sprint(want) })
			if n := len(server.Lines()); n != 99*2 {
				t.Errorf("%d lines, want one for each count that grew", n)
			}
			if network == "udp" && server.Largest() > 1432 {
				t.Errorf("a datagram of %d bytes", server.Largest())
			}
			if log.Len() > 0 {
				t.Error(log.String())
			}
		})
	}
}

func TestLinesAreSpelt(t *testing.T) {
	t.Parallel()
	rule, err := statsd.NewRule(`^ratelimit\.([^.]+)\.(.*)$`, "rl.$2", map[string]string{"domain": "$1", "all": "$0"})
	if err != nil {
		t.Fatal(err)
	}
	tagged, err := statsd.NewRule(`^ratelimit\.([^.]+)\.(.*)$`, "rl,domain=$1", nil)
	if err != nil {
		t.Fatal(err)
	}
	tags := map[string]string{"zone": "a.b|c", "env": "prod", "none": ""}
	long := strings.Repeat("x", 1500)
	for _, c := range []struct {
		name, count string
		options     statsd.Options
		want        string // "" for no line
	}{
		{"as it is", "a.b_c.total_hits", statsd.Options{}, "a.b_c.total_hits:5|c"},
		{"what a caller chose", "a.x\ny:7|c\r\x00|@0.1.total_hits", statsd.Options{}, "a.x_y_7_c___@0.1.total_hits:5|c"},
		{"tags that a caller chose", "a.x,job=y#b=c;d=e[f=g].total_hits", statsd.Options{}, "a.x_job=y_b=c_d=e_f=g_.total_hits:5|c"},
		{"a prefix", "a", statsd.Options{Prefix: "team"}, "team.a:5|c"},
		{"tags as lyft/gostats has them", "a", statsd.Options{Tags: tags}, "a.__env=prod.__zone=a_b_c:5|c"},
		{"tags as DogStatsD has them", "a", statsd.Options{Tags: tags, Dog: true}, "a:5|c|#env:prod,zone:a.b_c"},
		{"a rule", "ratelimit.api.x,\n", statsd.Options{Rules: []statsd.Rule{rule}, Dog: true, Tags: map[string]string{"env": "prod"}},
			"rl.x__:5|c|#env:prod,all:ratelimit.api.x__,domain:api"},
		{"a rule whose name has tags", "ratelimit.api.x,y=z", statsd.Options{Rules: []statsd.Rule{tagged}}, "rl,domain=api:5|c"},
		{"a rule without DogStatsD", "ratelimit.api.x", statsd.Options{Rules: []statsd.Rule{rule}}, "rl.x:5|c"},
		{"a rule of others", "other", statsd.Options{Rules: []statsd.Rule{rule}, Dog: true}, "other:5|c"},
		{"a name that is too long", long, statsd.Options{}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := statsdtest.ListenTCP(t, "127.0.0.1:0")
			c.options.Network, c.options.Address = "tcp", server.Address
			s, log := sender(c.options)
			b := book{}
			b.add(c.count, 5)
			s.Send(t.Context(), b.counts())
			if c.want == "" {
				if !strings.Contains(log.String(), "a line of more than 1432 bytes") || strings.Contains(log.String(), long) {
					t.Errorf("the log has %s", log)
				}
				return
			}
			asynctest.Eventually(t, "the line arrives", func() bool { return len(server.Lines()) > 0 })
			if got := server.Lines(); len(got) != 1 || got[0] != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestBadRulesAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, name string
		tags          map[string]string
		want          string
	}{
		{"", "a", nil, "found no pattern"},
		{"(", "a", nil, `found the pattern "("`},
		{"a", "", nil, "found no name"},
		{"(a)", "$2", nil, `found $2 in "$2"; allowed: $0 to $1`},
		{"(a)", "b", map[string]string{"k": "$3"}, `found $3 in "$3"`},
		{"(a)", "b", map[string]string{"k": ""}, `found the tag "k" with the value ""`},
		{"(a)", "b", map[string]string{"": "v"}, `found the tag ""`},
	} {
		if _, err := statsd.NewRule(c.pattern, c.name, c.tags); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q, %q, %v: %v, want %s", c.pattern, c.name, c.tags, err, c.want)
		}
	}
}

// While nobody listens, increments wait, and the log has a line.
func TestIncrementsWaitForAServerThatIsAway(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	s, log := sender(statsd.Options{Network: "tcp", Address: address})
	b := book{}
	for range 5 {
		b.add("a", 3)
		s.Send(t.Context(), b.counts())
	}
	if n := strings.Count(log.String(), "counts could not be sent"); n != 1 {
		t.Errorf("the log has it %d times: %s", n, log)
	}
	server := statsdtest.ListenTCP(t, address)
	s.Send(t.Context(), b.counts())
	asynctest.Eventually(t, "what waited arrives", func() bool { return server.Sums(t)["a"] == 15 })
}

// A server that accepts and never reads holds up nobody but the sender, which ends when
// its context does, and holds a packet at most.
func TestAServerThatDoesNotReadHoldsNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, log := sender(statsd.Options{Network: "tcp", Address: l.Addr().String()})
	b := book{}
	for i := range 200_000 {
		b.add(fmt.Sprintf("%s.%d", strings.Repeat("n", 100), i), 1)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s.Send(t.Context(), b.counts())
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 256<<10 {
		t.Errorf("the sender holds %d bytes", grown)
	}
	if !strings.Contains(log.String(), "counts could not be sent") {
		t.Errorf("the log has %q", log)
	}
	sent := 0
	for _, c := range b {
		if c[1] > 0 {
			sent++
		}
	}
	if sent == 0 || sent == len(b) {
		t.Errorf("%d of %d count as sent", sent, len(b))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Send(ctx, b.counts())
}
