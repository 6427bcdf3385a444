package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// soakLimits has a limit in reach and one out of reach for each algorithm, and
// a rule of two limits.
func soakLimits() (yaml string, limits map[string]int) {
	var b strings.Builder
	limits = make(map[string]int)
	add := func(key string, a bucket.Algorithm, n int) {
		fmt.Fprintf(&b, "  - key: %s\n    rate_limit: {algorithm: %s, requests: %d, period: 366d}\n", key, a, n)
		limits[key] = n
	}
	b.WriteString("domain: all\ndescriptors:\n")
	for _, a := range buckettest.Rates() {
		many := 20000
		if a == bucket.SlidingLog {
			many = 1000
		}
		add("many_"+a.String(), a, many)
		add("few_"+a.String(), a, 150)
	}
	b.WriteString(`  - key: pair
    rate_limits:
      - {name: first, algorithm: fixed_window, requests: 20000, period: 366d}
      - {name: second, algorithm: sliding_window, requests: 20000, period: 366d}
`)
	limits["pair"] = 20000
	return b.String(), limits
}

// soak is three daemons under load on one Redis while things go wrong.
type soak struct {
	t                 testing.TB
	rng               *rand.Rand
	masters, replicas []*redistest.Server
	prefix            string
	args              []string
	daemons           []*daemon
	load              *crowd
	single, double    []string // subjects of one and of two descriptors
	// unknown returns how many requests went to Redis without an answer.
	unknown float64
}

// TestCountersHoldWhateverHappens checks that no answer is missing. Redis's
// counters equal what callers were told, except for requests with an outcome
// that a daemon could not know.
func TestCountersHoldWhateverHappens(t *testing.T) {
	t.Parallel()
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		// Counts that a promoted replica lacks are lost; other tests look at that.
		c := redistest.StartCluster(t, 1, "--cluster-require-full-coverage", "no", "--cluster-node-timeout", "60000")
		s := &soak{t: t, masters: c.Masters, replicas: c.Replicas}
		s.run(redisFlags("cluster", c.Addrs()...), s.pause, s.cutConnections, s.flushScripts, s.restartReplica, s.moveSlot, s.restartDaemon)
	})
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		s := &soak{t: t, masters: []*redistest.Server{redistest.Start(t)}}
		s.run(redisFlags("single", s.masters[0].Addr()), s.pause, s.cutConnections, s.flushScripts, s.restartDaemon)
	})
}

func (s *soak) run(flags []string, faults ...func()) {
	t := s.t
	const seed = 20260731 // any seed will do
	s.rng = rand.New(rand.NewPCG(seed, 0))
	length := soaktest.Long(3*time.Second, 5*time.Minute)
	dir := t.TempDir()
	yaml, limits := soakLimits()
	write(t, dir, "all.yaml", yaml)
	s.prefix = flagOf(flags, "--redis-prefix")
	s.args = append(flags, "--redis-timeout", "100ms", "--redis-hash-tags", "6", "--drain-delay", "3s", "--limits-path", dir)
	for range 3 {
		s.daemons = append(s.daemons, start(t, s.args...))
	}
	for key := range limits {
		s.single = append(s.single, numbered(key, 2)...)
	}
	slices.Sort(s.single)
	for i := range 4 {
		s.double = append(s.double, fmt.Sprintf("many_fixed_window=d%d many_gcra=d%d", i, i+4))
	}
	s.load = gather(t, s.daemons, "all", 1, 80*time.Millisecond, append(s.single, s.double...)...)
	s.load.waitDecided(2, s.load.subjects())
	goroutines := s.goroutines()

	happened := 0
	for end := time.Now().Add(length); time.Now().Before(end) || happened < len(faults); happened++ {
		if happened%len(faults) == 0 {
			s.rng.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
		}
		faults[happened%len(faults)]()
		s.load.waitDecided(1+s.rng.IntN(3), s.load.subjects())
	}
	s.noLeaks(goroutines)
	s.load.goHome()
	s.settle(limits)
	t.Logf("%d faults; one descriptor: %v; two: %v; %v answers of Redis never came",
		happened, s.load.sum(s.single), s.load.sum(s.double), s.unknown)
}

// settle compares the counters with what callers were told.
func (s *soak) settle(limits map[string]int) {
	t := s.t
	excess := 0
	for _, subject := range s.load.subjects() {
		told := s.load.sum([]string{subject})
		if told.failed > 0 {
			t.Errorf("%s: calls were not answered: %v", subject, told)
		}
		for d := range strings.SplitSeq(subject, " ") {
			key, _, _ := strings.Cut(d, "=")
			charged := s.taken(d, limits[key])
			// An answer without Redis may have been charged all the same. One of two
			// descriptors was charged if only the node of the other failed.
			if told.admitted > charged || charged > told.admitted+told.unsure() || told.admitted > limits[key] {
				t.Errorf("%s: %d are charged; callers were told: %v", d, charged, told)
			}
			if d == subject {
				excess += charged - told.admitted
			}
		}
	}
	for _, d := range s.daemons {
		s.unknown += d.unknown()
	}
	// A request of one descriptor can only have been charged if its reason is
	// that Redis did not answer: others were not sent.
	if excess > int(s.unknown) {
		t.Errorf("%d are charged that no caller was told of, and only %v answers of Redis never came", excess, s.unknown)
	}
}

// taken is the taken of a daemon, once Redis decides: the last events may go
// on for a moment.
func (s *soak) taken(subject string, limit int) int {
	s.t.Helper()
	asynctest.Eventually(s.t, "Redis decides again", func() bool {
		// No limit has this many, so it costs nothing.
		return !degraded(s.daemons[0].ask("all", 1_000_000, subject))
	})
	return s.daemons[0].taken("all", subject, limit)
}

// unknown is how many requests Redis was asked about, without an answer.
func (d *daemon) unknown() float64 {
	d.t.Helper()
	const name = "ratelimitd_degraded_answers_total"
	return d.total(name, `reason="timeout"`) + d.total(name, `reason="unreachable"`)
}

func (s *soak) goroutines() float64 {
	maxGoroutines := 0.0
	for _, d := range s.daemons {
		maxGoroutines = max(maxGoroutines, d.total("go_goroutines"))
	}
	return maxGoroutines
}

// noLeaks waits until the daemons have about as many goroutines as before the
// faults, and Redis has no unused connections.
func (s *soak) noLeaks(goroutines float64) {
	s.t.Helper()
	asynctest.Eventually(s.t, "the daemons have no more goroutines than before", func() bool { return s.goroutines() <= goroutines+20 })
	// Callers need a connection each, and a daemon one or two of its own.
	enough := len(s.daemons) * (len(s.load.subjects()) + 2)
	for _, m := range s.masters {
		c := redistest.Client(s.t, m.Addr())
		asynctest.Eventually(s.t, "the daemons have no more connections than they can use", func() bool {
			list, err := c.Do(context.Background(), "client", "list", "type", "normal").Text()
			return err == nil && strings.Count(list, "\n") <= enough
		})
	}
}

func (s *soak) anyMaster() *redistest.Server { return s.masters[s.rng.IntN(len(s.masters))] }

// pause stops a master for a moment.
func (s *soak) pause() {
	m := s.anyMaster()
	m.Pause()
	time.Sleep(time.Duration(s.rng.IntN(300)) * time.Millisecond)
	m.Resume()
}

// cutConnections makes a master close all connections with calls on them. It
// decides some of the calls first.
func (s *soak) cutConnections() {
	m := s.anyMaster()
	c := redistest.Client(s.t, m.Addr())
	if err := c.Ping(context.Background()).Err(); err != nil {
		s.t.Fatal(err)
	}
	m.Pause()
	cut := make(chan error)
	go func() { cut <- c.ClientKillByFilter(context.Background(), "TYPE", "normal").Err() }()
	time.Sleep(50 * time.Millisecond) // calls gather
	m.Resume()
	if err := <-cut; err != nil {
		s.t.Fatal(err)
	}
}

func (s *soak) flushScripts() { flushScripts(s.t, s.masters) }

func (s *soak) restartReplica() {
	r := s.replicas[s.rng.IntN(len(s.replicas))]
	r.Kill()
	s.load.waitDecided(2, s.load.subjects())
	r.Restart()
}

// moveSlot moves a live slot to another master and back.
func (s *soak) moveSlot() {
	from := s.rng.IntN(len(s.masters))
	to := (from + 1 + s.rng.IntN(len(s.masters)-1)) % len(s.masters)
	slots := liveSlots(s.t, s.masters[from], s.prefix)
	slot := slots[s.rng.IntN(len(slots))]
	for _, m := range []*move{newMove(s.t, s.masters, from, to, slot), newMove(s.t, s.masters, to, from, slot)} {
		m.begin()
		for m.key() {
		}
		m.end()
		s.load.waitDecided(2, s.load.subjects())
	}
}

// restartDaemon ends a daemon by SIGTERM. Its callers go to a new one while it
// drains.
func (s *soak) restartDaemon() {
	i := s.rng.IntN(len(s.daemons))
	// On a busy machine a start takes longer than the old one drains.
	old, next := s.daemons[i], start(s.t, s.args...)
	old.signal(syscall.SIGTERM)
	old.waitForLog("msg=stopping")
	s.daemons[i] = next
	s.load.daemons[i].Store(next)
	s.load.waitDecided(2, s.load.subjects()) // the old one has no more calls
	s.unknown += old.unknown()
	if code := old.wait(); code != 0 {
		s.t.Errorf("a daemon that was told to stop exits with %d", code)
	}
}
