package redislog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// A daemon may take longer than 2 s on a busy machine to have a change in force, and longer
// than 0.3 s to say what Redis lacks.
func init() { maxAwait, hearWithin = 6*time.Second, 3*time.Second }

func newStore(t testing.TB, addr string, daemons func(context.Context) (Awaited, error)) *Store {
	t.Helper()
	conn, err := redisconn.New(redisconn.Options{Mode: redisconn.Single, Addresses: []string{addr},
		Prefix: fmt.Sprintf("test-%x", rand.Uint64()), Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s, err := New(conn, Options{ID: "self", Awaited: daemons, HashTags: 2, Tags: func(int) []string { return []string{"0", "1"} }})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// FuzzDecodeEntry puts whatever may stand in a stream or a hash into a table: what is
// not whole is passed over.
func FuzzDecodeEntry(f *testing.F) {
	subject := assign.Subject{Domain: "d", Entries: []bucket.Entry{{Key: "a", Value: "b"}}}
	whole := string(assign.Encode(&assign.Assignment{Subject: subject, Terms: assign.Terms{Plan: "p"}, ETag: "1-1"}))
	f.Add("1-1", "0-0", "assigned", encodeSubject(&subject), "", whole, "", "")
	f.Add("1-2", "1-1", "unassigned", encodeSubject(&subject), whole, "", "", "")
	f.Add("1-3", "1-2", "reset", encodeSubject(&subject), "", "", `["x"]`, `["k"]`)
	f.Add("x", "", "later", "{", "null", "5", "[", "{}")
	s := newStore(f, "127.0.0.1:1", nil)
	f.Fuzz(func(t *testing.T, id, p, kind, subject, before, after, limits, keys string) {
		m := redis.XMessage{ID: id, Values: map[string]any{"p": p, "kind": kind, "subject": subject,
			"before": before, "after": after, "limits": limits, "keys": keys}}
		for _, tag := range s.tags {
			e, err := decodeEntry(tag, m)
			if err == nil && (e.record.Subject.Check() != nil && !e.isSame || e.record.Kind == 0) {
				t.Fatalf("%+v is read as %+v", m, e)
			}
			if a := e.record.After; a != nil && a.Check() != nil {
				t.Fatalf("%+v has %+v", m, a)
			}
			n := news{}
			s.put(tag, &e, &n)
			if a, err := s.decodeField(tag, subject, after); err == nil && (a.Check() != nil || a.Text() != subject) {
				t.Fatalf("%q, %q is read as %+v", subject, after, a)
			}
		}
		for a := range s.table.All() {
			if a.Check() != nil {
				t.Fatalf("%+v is in force", a)
			}
		}
	})
}

// TestDaemonsThatAreGoneAreForgotten has many that wrote down what they have and ended.
func TestDaemonsThatAreGoneAreForgotten(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newStore(t, redistest.Single(t), func(context.Context) (Awaited, error) { return Awaited{IDs: []string{"self", "other"}}, nil })
	tag := s.tags[0]
	tag.isLoaded, tag.at = true, streamID{5, 6}
	for i := range 50 {
		s.redis.HSet(ctx, tag.seen, fmt.Sprint("gone-", i), "1-1")
	}
	s.redis.HSet(ctx, tag.seen, "other", "4-4")
	if err := s.renew(ctx); err != nil {
		t.Fatal(err)
	}
	got := s.redis.HGetAll(ctx, tag.seen).Val()
	if len(got) != 2 || got["self"] != "5-6" || got["other"] != "4-4" {
		t.Errorf("got %v", got)
	}
}

// A daemon in which nothing changes sleeps: to find no more changes wakes nobody.
func TestNothingToLookAtWakesNobody(t *testing.T) {
	t.Parallel()
	s := newStore(t, "127.0.0.1:1", nil)
	s.doorbell.mark()
	select {
	case <-s.doorbell.wake:
		t.Error("it is looked at nothing, again and again")
	default:
	}
	s.doorbell.mark(s.tags[1])
	select {
	case <-s.doorbell.wake:
	default:
		t.Error("a tag that has changed is not looked at")
	}
}

// A load that fails leaves a part in the table. What is removed from Redis before the
// next try is removed from the table too.
func TestLoadAfterOneThatFailed(t *testing.T) {
	t.Parallel()
	s := newStore(t, redistest.Single(t), nil)
	const n = 20_000
	const each = 500 // a pipeline of all takes a busy machine too long
	for first := 0; first < n; first += each {
		err := s.pipelined(t.Context(), func(ctx context.Context, pipe redis.Pipeliner) {
			for i := first; i < first+each; i++ {
				a := assign.Assignment{Subject: assign.Subject{Domain: "d", Entries: []bucket.Entry{{Key: "a", Value: fmt.Sprint(i)}}}, Terms: assign.Terms{Plan: "p"}, ETag: "1-1"}
				pipe.HSet(ctx, s.tagOf(a.Text()).assigned, a.Text(), assign.Encode(&a))
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.redis.AddHook(afterEach{func() {
		if s.table.Len() > 0 {
			cancel()
		}
	}})
	if err := s.load(ctx, s.tags, &news{}); err == nil || s.table.Len() == 0 || s.table.Len() == n {
		t.Fatalf("of %d assignments %d are loaded: %v", n, s.table.Len(), err)
	}
	for a := range s.table.All() {
		if err := s.redis.HDel(t.Context(), s.tagOf(a.Text()).assigned, a.Text()).Err(); err != nil {
			t.Fatal(err)
		}
		break
	}
	var found news
	if err := s.load(t.Context(), s.tags, &found); err != nil {
		t.Fatal(err)
	}
	s.removeLost(&found)
	if got := s.table.Len(); got != n-1 {
		t.Errorf("%d assignments are loaded, where Redis has %d", got, n-1)
	}
}

// afterEach calls a function after each command.
type afterEach struct{ do func() }

func (afterEach) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a afterEach) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer a.do()
		return next(ctx, cmd)
	}
}

func (afterEach) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// However long what is foreign is, a line of the log about it is short.
func TestLinesAboutWhatIsForeignAreShort(t *testing.T) {
	var out bytes.Buffer
	s := &Store{o: Options{Log: slog.New(slog.NewTextHandler(&out, nil))}}
	_, err := s.decodeField(nil, strings.Repeat("\x1b", 5<<20), `{"`+strings.Repeat("x", 5<<20)+`":1}`)
	s.logForeign("key", err)
	if n := out.Len(); err == nil || n == 0 || n > 2000 {
		t.Errorf("a line of %d bytes about %.100v", n, err)
	}
}

// Whoever may write into Redis can have changes be lost at each look. The log has a line
// a minute of it.
func TestLostChangesAreLoggedOnceAMinute(t *testing.T) {
	t.Parallel()
	var log asynctest.Buffer
	s := newStore(t, redistest.Single(t), nil)
	s.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	for i := range 20 {
		s.tags[0].isLoaded, s.tags[0].at = true, streamID{uint64(i + 1), 1} // which the stream does not have
		if _, _, err := s.look(context.Background(), s.tags[:1]); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "changes of assignments were lost"); n != 1 {
		t.Errorf("the log has %d lines:\n%s", n, log.String())
	}
}

// A change of a part whose reply was lost is made once: sent again it finds what it asked
// for, and that is no conflict with the version that it was for.
func TestChangeOfAPartThatIsSentAgainDoesNoHarm(t *testing.T) {
	t.Parallel()
	s := newStore(t, redistest.Single(t), nil)
	subject := assign.Subject{Domain: "d", Entries: []bucket.Entry{{Key: "a", Value: "b"}}}
	send := func(c assign.Change, resent bool) assign.Result {
		t.Helper()
		results := make([]assign.Result, 1)
		sent, _ := s.changeCall(s.tagOf(subject.Text()), []assign.Change{c}, []int{0}, Old{})
		if resent {
			sent.args[argResent] = "1"
		}
		s.sendChanges(t.Context(), []*call{sent})
		if _, err := decodeChanges(sent, []int{0}, results); err != nil {
			t.Fatal(err)
		}
		return results[0]
	}
	plan := assign.Change{Assignment: assign.Assignment{Subject: subject, Terms: assign.Terms{Plan: "pro"}}, IfMatch: assign.IfNone}
	made := send(plan, false)
	numbers := assign.Change{
		Assignment: assign.Assignment{Subject: subject, Terms: assign.Terms{Numbers: []assign.Numbers{{Requests: 5}}}, Ends: assign.Ends{NumbersUntil: []int64{assign.MaxMoment}}},
		IfMatch:    made.After.ETag,
	}
	removal := assign.Change{Assignment: assign.Assignment{Subject: subject}, Remove: assign.Parts{Plan: true}}
	for i, c := range []assign.Change{plan, numbers, removal} {
		if i > 0 {
			made = send(c, false)
		}
		if i == 2 {
			c.IfMatch = made.Before.ETag
		}
		again := send(c, true)
		if again.Outcome != assign.Unchanged || again.After == nil || again.After.ETag != made.After.ETag {
			t.Errorf("change %d, sent again: %+v, want %+v unchanged", i, again.After, made.After)
		}
		if c.IfMatch != "" {
			if r := send(c, false); r.Outcome != assign.Conflict {
				t.Errorf("change %d, asked for again: the outcome is %d", i, r.Outcome)
			}
		}
	}
	other := plan
	other.Assignment.Plan = "free"
	if r := send(other, true); r.Outcome != assign.Conflict {
		t.Errorf("another change: the outcome is %d", r.Outcome)
	}
}

// A change whose maker waits no longer for it may arrive seconds later. It undoes nothing
// that was changed meanwhile.
func TestChangeThatArrivesLateUndoesNothing(t *testing.T) {
	t.Parallel()
	s := newStore(t, redistest.Single(t), nil)
	subject := assign.Subject{Domain: "d", Entries: []bucket.Entry{{Key: "a", Value: "b"}}}
	plan := func(name string) *call {
		c, _ := s.changeCall(s.tagOf(subject.Text()), []assign.Change{{Assignment: assign.Assignment{Subject: subject, Terms: assign.Terms{Plan: name}}}}, []int{0}, Old{})
		return c
	}
	s.sendChanges(t.Context(), []*call{plan("first")})
	late, last := plan("late"), plan("last")
	s.sendChanges(t.Context(), []*call{last})
	s.run(t.Context(), changeScript, []*call{late})
	if err := errors.Join(last.cmd.Err(), late.cmd.Err()); err != nil {
		t.Fatal(err)
	}
	a := readable(s.redis.HGet(t.Context(), last.tag.assigned, subject.Text()).Val())
	if a == nil || a.Plan != "last" {
		t.Errorf("in force is %+v, want the plan last", a)
	}
}

// A call with long changes has few of them, so that it keeps no server for long.
func TestCallsWithLongChangesHaveFew(t *testing.T) {
	t.Parallel()
	s := newStore(t, "127.0.0.1:1", nil)
	var changes []assign.Change
	var batch []int
	for i := range 3 * maxPerCall {
		c := assign.Change{Assignment: assign.Assignment{
			Subject: assign.Subject{Domain: "d", Entries: []bucket.Entry{{Key: "a", Value: fmt.Sprint(i)}}}, Terms: assign.Terms{Plan: "pro"},
		}}
		if i >= maxPerCall {
			c.Assignment.Reason = "long"
			for j := range assign.MaxNumbers {
				c.Assignment.Numbers = append(c.Assignment.Numbers, assign.Numbers{Limit: fmt.Sprintf("%03d%s", j, strings.Repeat("<", 250))})
			}
		}
		changes, batch = append(changes, c), append(batch, i)
	}
	for left := batch; len(left) > 0; {
		c, n := s.changeCall(s.tags[0], changes, left, Old{})
		bytes := 0
		for _, arg := range c.args {
			bytes += len(fmt.Sprint(arg))
		}
		if n < 1 || n > maxPerCall || bytes > maxBytesPerCall+64<<10 || left[0] == 0 && n != maxPerCall {
			t.Fatalf("from change %d on, a call has %d of %d bytes", left[0], n, bytes)
		}
		left = left[n:]
	}
}
