package ask_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/fleet/ask"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Run(m)) }

// crowd are daemons of one register.
type crowd struct {
	t       *testing.T
	options redisconn.Options
	ids     []string
	clock   *asynctest.Clock
}

func newCrowd(t *testing.T, mode redisconn.Mode, addresses ...string) *crowd {
	return &crowd{t: t, clock: asynctest.NewClock(), options: redisconn.Options{
		Mode: mode, Addresses: addresses, Prefix: fmt.Sprintf("test-%x", rand.Uint64()), Timeout: 10 * time.Second,
	}}
}

// join adds a daemon that listens, and answers by a function.
func (c *crowd) join(id string, answer func([]byte) []byte) *ask.Line {
	c.t.Helper()
	l := c.line(id, answer)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan bool)
	go func() {
		l.Run(ctx)
		close(ended)
	}()
	c.t.Cleanup(func() {
		cancel()
		<-ended
	})
	asynctest.Eventually(c.t, "it listens", l.IsListening)
	return l
}

// line adds a daemon that does not listen.
func (c *crowd) line(id string, answer func([]byte) []byte) *ask.Line {
	c.t.Helper()
	conn, err := redisconn.New(c.options)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { conn.Close() })
	c.ids = append(c.ids, id)
	return ask.New(conn, ask.Options{
		ID: id, Answer: answer, Clock: c.clock.Time,
		Daemons: func(context.Context) ([]string, error) { return slices.Clone(c.ids), nil },
	})
}

func echo(id string) func([]byte) []byte {
	return func(question []byte) []byte { return []byte(id + " hears " + string(question)) }
}

func modes(t *testing.T, test func(t *testing.T, c *crowd)) {
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		test(t, newCrowd(t, redisconn.Single, redistest.Single(t)))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		test(t, newCrowd(t, redisconn.Cluster, redistest.Cluster(t)...))
	})
}

func TestEachOtherDaemonAnswers(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c *crowd) {
		one := c.join("one", echo("one"))
		if answers, pending, err := one.Ask(t.Context(), []byte("?")); len(answers) > 0 || len(pending) > 0 || err != nil {
			t.Errorf("alone it gets %q, %q, %v", answers, pending, err)
		}
		two := c.join("two", echo("two"))
		c.join("three", echo("three"))
		for i, l := range []*ask.Line{one, two, one} {
			answers, pending, err := l.Ask(t.Context(), fmt.Append(nil, i))
			if err != nil || len(pending) > 0 || len(answers) != 2 || string(answers["three"]) != fmt.Sprint("three hears ", i) {
				t.Errorf("question %d gets %q, %q, %v", i, answers, pending, err)
			}
		}
		for _, address := range c.options.Addresses {
			for key, ttl := range redistest.Keys(t, redistest.Client(t, address), c.options.Prefix) {
				if ttl > time.Minute || ttl <= 0 || strings.Contains(key, "answer") {
					t.Errorf("%s lives for %s", key, ttl)
				}
			}
		}
	})
}

func TestWhoDoesNotAnswerIsNamed(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, redisconn.Single, redistest.Single(t))
	one := c.join("one", echo("one"))
	c.join("two", echo("two"))
	c.join("off", func([]byte) []byte { return nil })
	c.join("long", func([]byte) []byte { return make([]byte, ask.MaxBytes+1) })
	answers, pending, err := one.Ask(t.Context(), []byte("?"))
	slices.Sort(pending)
	if err != nil || len(answers) != 1 || fmt.Sprint(pending) != "[long off]" {
		t.Errorf("got %q, %q, %v", answers, pending, err)
	}
	c.line("deaf", nil)
	answers, pending, err = one.Ask(t.Context(), []byte("?"))
	slices.Sort(pending)
	if err != nil || len(answers) != 1 || fmt.Sprint(pending) != "[deaf long off]" {
		t.Errorf("got %q, %q, %v", answers, pending, err)
	}
	if _, _, err := one.Ask(t.Context(), make([]byte, ask.MaxBytes+1)); err == nil {
		t.Error("a question may be as long as it likes")
	}
}

func TestFewQuestionsAreAnsweredInASecond(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, redisconn.Single, redistest.Single(t))
	one := c.join("one", echo("one"))
	var asked atomic.Int64
	c.join("two", func([]byte) []byte { asked.Add(1); return []byte("!") })
	for i := range 6 {
		if _, pending, _ := one.Ask(t.Context(), []byte("?")); len(pending) == 1 != (i == 5) {
			t.Errorf("after %d answers %q are pending", i, pending)
		}
	}
	if n := asked.Load(); n != 5 {
		t.Errorf("%d questions were answered", n)
	}
	c.clock.Move(time.Second)
	if answers, _, _ := one.Ask(t.Context(), []byte("?")); len(answers) != 1 {
		t.Error("in the next second no question is answered")
	}
}

func TestLineSurvivesARestart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := newCrowd(t, redisconn.Single, server.Addr())
	one, two := c.join("one", echo("one")), c.join("two", echo("two"))
	if answers, _, _ := one.Ask(t.Context(), []byte("?")); len(answers) != 1 {
		t.Error("nobody answers")
	}
	server.Stop()
	if _, _, err := one.Ask(t.Context(), []byte("?")); err == nil {
		t.Error("without Redis all are asked")
	}
	asynctest.Eventually(t, "it is deaf", func() bool { return !two.IsListening() })
	server.Restart()
	asynctest.Eventually(t, "it listens", two.IsListening)
	asynctest.Eventually(t, "it answers", func() bool {
		c.clock.Move(time.Second)
		answers, _, _ := one.Ask(t.Context(), []byte("?"))
		return len(answers) == 1
	})
}
