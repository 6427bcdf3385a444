package fleet_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/fleet"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

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
func (c *crowd) join(id string, answer func([]byte) []byte) *fleet.Line {
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
func (c *crowd) line(id string, answer func([]byte) []byte) *fleet.Line {
	c.t.Helper()
	return c.lineOn(c.connect(), id, answer)
}

func (c *crowd) connect() *redisconn.Conn {
	c.t.Helper()
	conn, err := redisconn.New(c.options)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { conn.Close() })
	return conn
}

func (c *crowd) lineOn(conn *redisconn.Conn, id string, answer func([]byte) []byte) *fleet.Line {
	c.ids = append(c.ids, id)
	return fleet.NewLine(conn, fleet.LineOptions{
		ID: id, Answer: answer, Clock: c.clock.Time,
		Daemons: func(context.Context) ([]string, error) { return slices.Clone(c.ids), nil },
	})
}

// asked returns what the others answer, by their IDs.
func asked(t *testing.T, l *fleet.Line, question []byte) (answers map[string][]byte, pending []string, _ error) {
	answers = make(map[string][]byte)
	pending, err := l.Ask(t.Context(), question, func(daemon string, answer []byte) { answers[daemon] = answer })
	return answers, pending, err
}

func echo(id string) func([]byte) []byte {
	return func(question []byte) []byte { return []byte(id + " hears " + string(question)) }
}

func crowds(t *testing.T, test func(t *testing.T, c *crowd)) {
	modes(t, func(t *testing.T, o options) {
		t.Parallel()
		test(t, newCrowd(t, o.Mode, o.Addresses...))
	})
}

func TestEachOtherDaemonAnswers(t *testing.T) {
	t.Parallel()
	crowds(t, func(t *testing.T, c *crowd) {
		one := c.join("one", echo("one"))
		if answers, pending, err := asked(t, one, []byte("?")); len(answers) > 0 || len(pending) > 0 || err != nil {
			t.Errorf("alone it gets %q, %q, %v", answers, pending, err)
		}
		two := c.join("two", echo("two"))
		c.join("three", echo("three"))
		for i, l := range []*fleet.Line{one, two, one} {
			answers, pending, err := asked(t, l, fmt.Append(nil, i))
			if err != nil || len(pending) > 0 || len(answers) != 2 || string(answers["three"]) != fmt.Sprint("three hears ", i) {
				t.Errorf("question %d gets %q, %q, %v", i, answers, pending, err)
			}
		}
		for _, address := range c.options.Addresses {
			client := redistest.Client(t, address)
			for key, end := range redistest.Keys(t, client, c.options.Prefix) {
				if end.IsZero() || end.After(redistest.Now(t, client).Add(time.Minute)) || strings.Contains(key, "answer") {
					t.Errorf("%s expires at %s", key, end)
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
	c.join("long", func([]byte) []byte { return make([]byte, fleet.MaxAnswerBytes+1) })
	answers, pending, err := asked(t, one, []byte("?"))
	slices.Sort(pending)
	if err != nil || len(answers) != 1 || fmt.Sprint(pending) != "[long off]" {
		t.Errorf("got %q, %q, %v", answers, pending, err)
	}
	c.line("deaf", nil)
	answers, pending, err = asked(t, one, []byte("?"))
	slices.Sort(pending)
	if err != nil || len(answers) != 1 || fmt.Sprint(pending) != "[deaf long off]" {
		t.Errorf("got %q, %q, %v", answers, pending, err)
	}
	if _, _, err := asked(t, one, make([]byte, fleet.MaxAnswerBytes+1)); err == nil {
		t.Error("a question may be as long as it likes")
	}
}

func TestFewQuestionsAreAnsweredInASecond(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, redisconn.Single, redistest.Single(t))
	one := c.join("one", echo("one"))
	var heard atomic.Int64
	c.join("two", func([]byte) []byte { heard.Add(1); return []byte("!") })
	for i := range 6 {
		if _, pending, _ := asked(t, one, []byte("?")); len(pending) == 1 != (i == 5) {
			t.Errorf("after %d answers %q are pending", i, pending)
		}
	}
	if n := heard.Load(); n != 5 {
		t.Errorf("%d questions were answered", n)
	}
	c.clock.Move(time.Second)
	if answers, _, _ := asked(t, one, []byte("?")); len(answers) != 1 {
		t.Error("in the next second no question is answered")
	}
}

func TestLineSurvivesARestart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := newCrowd(t, redisconn.Single, server.Addr())
	one, two := c.join("one", echo("one")), c.join("two", echo("two"))
	if answers, _, _ := asked(t, one, []byte("?")); len(answers) != 1 {
		t.Error("nobody answers")
	}
	server.Kill()
	if _, _, err := asked(t, one, []byte("?")); err == nil {
		t.Error("without Redis all are asked")
	}
	asynctest.Eventually(t, "it is deaf", func() bool { return !two.IsListening() })
	server.Restart()
	asynctest.Eventually(t, "it listens", two.IsListening)
	asynctest.Eventually(t, "it answers", func() bool {
		c.clock.Move(time.Second)
		answers, _, _ := asked(t, one, []byte("?"))
		return len(answers) == 1
	})
}

// Somebody else writes into Redis: what is no question or no answer costs an answer at
// most, and no more memory than one has. It measures memory, so no other runs beside it.
func TestBrokenMessagesCostAnAnswerAtMost(t *testing.T) {
	c := newCrowd(t, redisconn.Single, redistest.Single(t))
	client := redistest.Client(t, c.options.Addresses[0])
	stream := c.options.Prefix + "{~ask}~questions"
	one := c.join("one", echo("one"))
	c.join("two", echo("two"))
	// They are where the answers of two would be: a long one, and what is no answer.
	for question, answer := range map[string]any{"long": strings.Repeat("=", 64<<20), "odd": "?", "list": nil} {
		c.line(question, nil)
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for last := ""; ; {
				select {
				case <-stop:
					return
				default:
				}
				newest, err := client.XRevRangeN(context.Background(), stream, "+", "-", 1).Result()
				if err != nil || len(newest) == 0 || newest[0].ID == last {
					continue
				}
				last = newest[0].ID
				key := c.options.Prefix + "{~ask}~answer:" + last + ":" + question
				if answer == nil {
					client.RPush(context.Background(), key, "x")
				} else {
					client.Set(context.Background(), key, answer, time.Minute)
				}
			}
		}()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		answers, pending, err := asked(t, one, []byte("?"))
		runtime.ReadMemStats(&after)
		close(stop)
		<-done
		if err != nil || len(answers) != 1 || !slices.Equal(pending, []string{question}) {
			t.Errorf("%s: got %d answers, %q, %v", question, len(answers), pending, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; question == "long" && n > 32<<20 {
			t.Errorf("%s: %d bytes are allocated", question, n)
		}
		c.ids = c.ids[:2]
		c.clock.Move(time.Second)
	}
	for range 4 {
		if err := client.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, Values: map[string]any{"question": strings.Repeat("x", 1<<20)}}).Err(); err != nil {
			t.Fatal(err)
		}
		if err := client.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, Values: map[string]any{"from": "\xff"}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	asynctest.Eventually(t, "an answer", func() bool {
		c.clock.Move(time.Second)
		answers, _, _ := asked(t, one, []byte("?"))
		return len(answers) == 1
	})
}
