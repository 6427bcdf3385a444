package integration

import (
	"context"
	bin "encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// leaseJob tells a process of the tests, as JSON in an environment variable, to be a client
// that asks until its standard input ends.
const leaseJob = "RATELIMITD_TEST_LEASE_JOB"

type job struct {
	Target  string
	Demands []demand
	// Start is when the demands' first tenths of a second begin, in microseconds.
	Start int64
}

// demand is for one key, by some goroutines. Rates are how many decisions a second are
// asked for in each tenth of a second, in turn.
type demand struct {
	Key   string
	Rates []int
}

const (
	leaseGoroutines = 4       // of each key
	recordBytes     = 1 + 2*8 // key, and when it was asked and answered
)

// leaseIfTold reports whether this process is such a client. It writes a record of each
// request that was allowed, a batch at a time, so that little is lost when it is killed.
func leaseIfTold() bool {
	text, ok := os.LookupEnv(leaseJob)
	if !ok {
		return false
	}
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		panic(err)
	}
	c, err := client.New(j.Target, client.Timeout(answerTimeout))
	if err != nil {
		panic(err)
	}
	ctx, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for i, d := range j.Demands {
		for range leaseGoroutines {
			running.Go(func() { j.ask(ctx, c, byte(i), d) })
		}
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	end()
	running.Wait()
	_ = c.Close()
	fmt.Fprintln(os.Stderr, c.Stats().Leased)
	return true
}

// ask asks for one key, in bursts at random moments: leases are used late too.
func (j *job) ask(ctx context.Context, c *client.Client, index byte, d demand) {
	r := client.Request{Domain: "all", Descriptors: []client.Descriptor{{Entries: []client.Entry{client.E(d.Key, "k")}}}}
	var records []byte
	for last := time.Now(); ctx.Err() == nil; {
		time.Sleep(rand.N(20 * time.Millisecond))
		now := time.Now()
		tenths := int((now.UnixMicro() - j.Start) / 100_000)
		owed := min(now.Sub(last), 100*time.Millisecond).Seconds() * float64(d.Rates[tenths%len(d.Rates)]) / leaseGoroutines
		for last = now; owed > rand.Float64() && ctx.Err() == nil; owed-- {
			asked := time.Now().UnixMicro()
			got, err := c.Take(ctx, r)
			answered := time.Now().UnixMicro()
			if err == nil && got.Allowed && !got.Degraded {
				records = append(records, index)
				records = bin.LittleEndian.AppendUint64(records, uint64(asked))
				records = bin.LittleEndian.AppendUint64(records, uint64(answered))
			}
		}
		if _, err := os.Stdout.Write(records); err != nil {
			return
		}
		records = records[:0]
	}
}

// leaseCaller is such a process.
type leaseCaller struct {
	*exec.Cmd
	end io.Closer
	out string // the file of its records
}

func startLeaseCaller(t testing.TB, j job) *leaseCaller {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.OpenFile(filepath.Join(t.TempDir(), "records"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c := &leaseCaller{Cmd: exec.Command(os.Args[0]), out: out.Name()}
	c.Env = append(cleanEnv(), leaseJob+"="+string(text))
	c.Stdout, c.Stderr = out, new(countBuffer)
	if c.end, err = c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	return c
}

// countBuffer is the number that a caller prints at its end.
type countBuffer struct{ n int }

func (b *countBuffer) Write(p []byte) (int, error) {
	_, err := fmt.Sscan(string(p), &b.n)
	return len(p), err
}

// finish ends callers, except those that were killed, and returns how many units of
// leases they used.
func finish(t testing.TB, callers []*leaseCaller) (leased int) {
	t.Helper()
	for _, c := range callers {
		_ = c.end.Close()
	}
	for _, c := range callers {
		var exit *exec.ExitError
		if err := c.Wait(); err != nil && !(errors.As(err, &exit) && exit.ExitCode() == -1) {
			t.Errorf("a caller ends with %v", err)
		}
		leased += c.Stderr.(*countBuffer).n
	}
	return leased
}

// seen is when requests that were allowed were asked and answered, both in the order of
// time. Neither the moment of Redis nor that of a lease is known: a process may be stopped
// between a decision and its stamp. But at least so many were decided in a span as were
// answered by its end, less those that were asked before its beginning.
type seen struct{ asked, answered []int64 }

// read returns what callers have written of each key.
func read(t testing.TB, callers []*leaseCaller, keys int) []seen {
	t.Helper()
	all := make([]seen, keys)
	for _, c := range callers {
		text, err := os.ReadFile(c.out)
		if err != nil {
			t.Fatal(err)
		}
		for ; len(text) >= recordBytes; text = text[recordBytes:] {
			s := &all[text[0]]
			s.asked = append(s.asked, int64(bin.LittleEndian.Uint64(text[1:])))
			s.answered = append(s.answered, int64(bin.LittleEndian.Uint64(text[9:])))
		}
	}
	for _, s := range all {
		slices.Sort(s.asked)
		slices.Sort(s.answered)
	}
	return all
}

// exceeds returns an error if a span saw more than the limit allows.
func (s seen) exceeds(spec bucket.Spec) error {
	spec.Lease = 0
	l, err := bucket.NewLimit(spec)
	if err != nil {
		return err
	}
	if l.Algorithm.IsBucket() {
		return s.exceedsBucket(l)
	}
	period, n := l.Period.Microseconds(), 0
	for before, begin := range s.asked {
		end := begin + period
		if l.Algorithm == bucket.FixedWindow {
			end -= begin % period
		}
		for n < len(s.answered) && s.answered[n] < end {
			n++
		}
		if used := int64(n - before); used > l.Capacity {
			return fmt.Errorf("%d of %d were used from %d to %d", used, l.Capacity, begin, end)
		}
	}
	return nil
}

// exceedsBucket compares what each span saw with the burst and what is refilled in it, in
// units of the bucket.
func (s seen) exceedsBucket(l *bucket.Limit) error {
	if len(s.asked) == 0 {
		return nil
	}
	// A level is what was used until a moment, less what was refilled.
	level := func(n int, at int64) int64 {
		return int64(n)*l.Unit - (at/l.Quantum-s.asked[0]/l.Quantum)*l.Rate
	}
	lowest, before := int64(0), 0
	for i, end := range s.answered {
		for ; before < len(s.asked) && s.asked[before] <= end; before++ {
			lowest = min(lowest, level(before, s.asked[before]))
		}
		if rise := level(i+1, end) - lowest; rise > l.Capacity*l.Unit {
			return fmt.Errorf("%d of %d of a burst were used until %d", rise/l.Unit, l.Capacity, end)
		}
	}
	return nil
}
