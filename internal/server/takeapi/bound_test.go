package takeapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/accounts"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// boundLimits have a hold that is long for tests in which nothing is renewed, and one that
// is renewed every 100 ms or so, whatever the store's clock says.
const boundLimits = `
domain: api
descriptors:
- key: tenant
  rate_limit: {name: rate, algorithm: fixed_window, requests: 1000, period: 1h}
  descriptors:
  - key: request_id
    rate_limit: {name: flight, algorithm: concurrency, requests: 2, hold: 1h}
- key: brief
  descriptors:
  - key: request_id
    rate_limit: {name: brief, algorithm: concurrency, requests: 2, hold: 300ms}
- key: many
  descriptors:
  - key: request_id
    rate_limit: {name: many, algorithm: concurrency, requests: 10000, hold: 1h}
`

// watched is a store that counts the takes of each holder.
type watched struct {
	bucket.Store
	fails atomic.Bool

	mu    sync.Mutex
	takes map[string]int
	// gate, if it is set, is received from before the take of this holder is decided.
	gates map[string]chan struct{}
}

var errStoreAway = errors.New("the store is away")

func (w *watched) Take(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	w.mu.Lock()
	h := hits[len(hits)-1]
	if h.Cost > 0 {
		w.takes[h.Holder]++
	}
	gate := w.gates[h.Holder]
	w.mu.Unlock()
	if gate != nil && h.Cost > 0 {
		<-gate
	}
	if w.fails.Load() {
		return errStoreAway
	}
	return w.Store.Take(ctx, hits, decisions)
}

// awaitTakes waits until a holder has taken so many times more.
func (w *watched) awaitTakes(t *testing.T, holder string, more int) {
	t.Helper()
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.takes[holder]
	}
	goal := count() + more
	asynctest.Eventually(t, "takes of "+holder, func() bool { return count() >= goal })
}

// boundDaemon is a daemon on a watched store.
type boundDaemon struct {
	*servertest.Daemon
	store *watched
}

func startBound(t *testing.T, waits bool, change ...func(*server.Options)) *boundDaemon {
	t.Helper()
	d := &boundDaemon{store: &watched{takes: make(map[string]int), gates: make(map[string]chan struct{})}}
	d.Daemon = servertest.Start(t, boundLimits, append([]func(*server.Options){func(o *server.Options) {
		d.store.Store, o.Store, o.StoreWaits = o.Store, d.store, waits
	}}, change...)...)
	return d
}

// free returns how many slots of a tenant, such as "tenant=a", are free.
func (d *boundDaemon) free(tenant string) uint64 {
	d.T.Helper()
	return d.Take(tenant + ",request_id=look:0").GetLimits()[0].GetRemaining()
}

// eachWay runs a test on daemons whose stores wait, and do not.
func eachWay(t *testing.T, test func(t *testing.T, waits bool)) {
	t.Parallel()
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprint("waits ", waits), func(t *testing.T) {
			t.Parallel()
			test(t, waits)
		})
	}
}

// caller asks over a stream, and reads what comes.
type caller struct {
	t      *testing.T
	stream ratelimitv1.RateLimitService_TakeStreamClient
	cancel context.CancelFunc
	number uint64
	lost   []uint64
}

func (d *boundDaemon) caller(t *testing.T) *caller {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), servertest.Patience)
	t.Cleanup(cancel)
	s, err := d.API().TakeStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &caller{t: t, stream: s, cancel: cancel}
}

// send sends a take, and returns its number.
func (c *caller) send(n *ratelimitv1.NumberedTake) uint64 {
	c.t.Helper()
	c.number++
	n.Number = c.number
	if err := c.stream.Send(&ratelimitv1.TakeStreamRequest{Takes: []*ratelimitv1.NumberedTake{n}}); err != nil {
		c.t.Fatal(err)
	}
	return n.Number
}

// answer waits for the answer to a number.
func (c *caller) answer(number uint64) *ratelimitv1.TakeResult {
	c.t.Helper()
	for {
		m, err := c.stream.Recv()
		if err != nil {
			c.t.Fatal(err)
		}
		c.lost = append(c.lost, m.GetLost()...)
		for _, r := range m.GetResults() {
			if r.GetNumber() == number {
				return r.GetResult()
			}
		}
	}
}

// awaitLost waits until something is lost.
func (c *caller) awaitLost() []uint64 {
	c.t.Helper()
	for len(c.lost) == 0 {
		m, err := c.stream.Recv()
		if err != nil {
			c.t.Fatal(err)
		}
		c.lost = append(c.lost, m.GetLost()...)
	}
	return c.lost
}

// bind takes and binds, and fails the test if that is denied.
func (c *caller) bind(descriptors ...string) (number uint64) {
	c.t.Helper()
	number = c.send(&ratelimitv1.NumberedTake{Take: servertest.Taking(descriptors...), Bind: true})
	if r := c.answer(number); !r.GetResponse().GetAllowed() {
		c.t.Fatalf("a take of %s gets %v", descriptors, r)
	}
	return number
}

// release releases, or only unbinds.
func (c *caller) release(onlyUnbinds bool, descriptors ...string) *ratelimitv1.TakeResult {
	c.t.Helper()
	return c.answer(c.send(&ratelimitv1.NumberedTake{Take: servertest.Taking(descriptors...), Release: true, Bind: onlyUnbinds}))
}

// end ends the stream and reads the rest.
func (c *caller) end() {
	c.t.Helper()
	_ = c.stream.CloseSend()
	for {
		if _, err := c.stream.Recv(); err != nil {
			if !errors.Is(err, io.EOF) {
				c.t.Error(err)
			}
			return
		}
	}
}

// What is bound is held as long as the stream, and free when its caller ends it. If the
// connection goes it lapses: the caller may run on behind a cut.
func TestBoundSlotsLastAsLongAsTheStream(t *testing.T) {
	eachWay(t, func(t *testing.T, waits bool) {
		d := startBound(t, waits)
		c := d.caller(t)
		c.bind("tenant=a", "brief=a,request_id=1")
		c.bind("brief=a,request_id=2")
		for range 5 {
			d.Clock.Move(200 * time.Millisecond)
			for _, holder := range []string{"1", "2"} {
				d.store.awaitTakes(t, holder, 2) // the first may have begun before
			}
		}
		if got := d.free("brief=a"); got != 0 {
			t.Errorf("%d are free while both are bound", got)
		}
		if got := d.Take("tenant=a:0").GetLimits()[0].GetRemaining(); got != 999 {
			t.Errorf("%d remain of the rate: renewals were charged to it", got)
		}
		c.end()
		if got := d.free("brief=a"); got != 2 {
			t.Errorf("%d are free once the stream is closed", got)
		}
		if len(c.lost) > 0 {
			t.Errorf("%d are said to be lost", c.lost)
		}

		c = d.caller(t)
		c.bind("tenant=b,request_id=1")
		c.cancel()
		asynctest.Eventually(t, "the slot of a cancelled stream is free", func() bool { return d.free("tenant=b") == 2 })

		c = d.caller(t)
		c.bind("tenant=c,request_id=1")
		_ = d.Conn.Close()
		d.Dial(servertest.Plain())
		const hold = time.Hour // of flight
		for range 3 {
			if got := d.free("tenant=c"); got != 1 {
				t.Errorf("%d are free when the connection is gone, before the hold has ended", got)
			}
			d.Clock.Move(hold / 4)
		}
		if d.Clock.Move(hold); d.free("tenant=c") != 2 {
			t.Error("the slot of a connection that is gone does not lapse")
		}
	})
}

// A take that does not bind is not renewed, nor freed.
func TestOnlyWhatIsBoundIsRenewed(t *testing.T) {
	eachWay(t, func(t *testing.T, waits bool) {
		d := startBound(t, waits)
		c := d.caller(t)
		if r := c.answer(c.send(&ratelimitv1.NumberedTake{Take: servertest.Taking("brief=a,request_id=plain")})); !r.GetResponse().GetAllowed() {
			t.Fatal(r)
		}
		c.bind("brief=a,request_id=bound")
		d.store.awaitTakes(t, "bound", 3)
		c.end()
		if got := d.free("brief=a"); got != 1 {
			t.Errorf("%d are free, want 1", got)
		}
	})
}

// A daemon that stops leaves what is bound to lapse.
func TestDrainedStreamLeavesItsSlots(t *testing.T) {
	eachWay(t, func(t *testing.T, waits bool) {
		d := startBound(t, waits)
		other := startBound(t, waits, servertest.On(d.store))
		c := d.caller(t)
		c.bind("tenant=a,request_id=1")
		d.Stop <- 0
		if _, err := readAll(c.stream); err == nil || c.stream.Trailer().Get("ratelimit-drained") == nil {
			t.Fatalf("the stream ends with %v, %v", err, c.stream.Trailer())
		}
		d.Wait()
		if got := other.free("tenant=a"); got != 1 {
			t.Fatalf("%d are free after the stream was drained, want 1", got)
		}
		// On another stream it is renewed, and free with that.
		c = other.caller(t)
		c.bind("tenant=a,request_id=1")
		if got := other.free("tenant=a"); got != 1 {
			t.Errorf("%d are free, want 1", got)
		}
		c.end()
		if got := other.free("tenant=a"); got != 2 {
			t.Errorf("%d are free, want 2", got)
		}
	})
}

// A stream frees only what nobody else has renewed since, so a holder can move.
func TestSlotsMoveToAnotherStream(t *testing.T) {
	eachWay(t, func(t *testing.T, waits bool) {
		d := startBound(t, waits)
		from, to := d.caller(t), d.caller(t)
		from.bind("tenant=a,request_id=1")
		to.bind("tenant=a,request_id=1")
		from.end()
		if got := d.free("tenant=a"); got != 1 {
			t.Errorf("%d are free after the first stream's end, want 1", got)
		}
		next := d.caller(t)
		if r := to.release(true, "tenant=a,request_id=1"); r.GetReleased() == nil || len(r.GetReleased().GetLimits()) != 0 {
			t.Errorf("unbinding gets %v", r)
		}
		to.end()
		if got := d.free("tenant=a"); got != 1 {
			t.Errorf("%d are free after the end of a stream that was left, want 1", got)
		}
		next.bind("tenant=a,request_id=1")
		next.end()
		if got := d.free("tenant=a"); got != 2 {
			t.Errorf("%d are free in the end, want 2", got)
		}
	})
}

func TestReleaseOnAStream(t *testing.T) {
	eachWay(t, func(t *testing.T, waits bool) {
		d := startBound(t, waits)
		c := d.caller(t)
		c.bind("tenant=a", "tenant=a,request_id=1")
		for i, want := range []ratelimitv1.Released{ratelimitv1.Released_RELEASED_SLOT, ratelimitv1.Released_RELEASED_NOTHING} {
			r := c.release(false, "tenant=a", "tenant=a,request_id=1").GetReleased()
			if len(r.GetLimits()) != 1 || r.GetLimits()[0].GetReleased() != want || r.GetLimits()[0].GetDescriptorIndex() != 1 {
				t.Errorf("release %d gets %v", i, r)
			}
		}
		// Somebody else has it now, whom the end of the stream does not concern.
		d.Take("tenant=a,request_id=1")
		c.end()
		if got := d.free("tenant=a"); got != 1 {
			t.Errorf("%d are free, want 1", got)
		}
		wrong := d.caller(t)
		n := &ratelimitv1.NumberedTake{Settle: servertest.Settling("x", "tenant=a:1"), Bind: true}
		if r := wrong.answer(wrong.send(n)); codes.Code(r.GetError().GetCode()) != codes.InvalidArgument {
			t.Errorf("a settlement that binds gets %v", r)
		}
		if r := wrong.release(false, "tenant=a,request_id="); codes.Code(r.GetError().GetCode()) != codes.InvalidArgument {
			t.Errorf("a release of nobody gets %v", r)
		}
	})
}

// A release that is decided before the take that it is of frees what that gets.
func TestReleaseThatOvertakesItsTake(t *testing.T) {
	t.Parallel()
	d := startBound(t, true)
	gate := make(chan struct{})
	d.store.gates["1"] = gate
	c := d.caller(t)
	take := c.send(&ratelimitv1.NumberedTake{Take: servertest.Taking("tenant=a,request_id=1"), Bind: true})
	if r := c.release(false, "tenant=a,request_id=1").GetReleased(); r.GetLimits()[0].GetReleased() != ratelimitv1.Released_RELEASED_NOTHING {
		t.Fatalf("the release gets %v", r)
	}
	close(gate)
	if r := c.answer(take); !r.GetResponse().GetAllowed() {
		t.Fatalf("the take gets %v", r)
	}
	if got := d.free("tenant=a"); got != 2 {
		t.Errorf("%d are free, want 2", got)
	}
}

// The caller is told of what he has lost, and of nothing else.
func TestLostSlotsAreTold(t *testing.T) {
	eachWay(t, func(t *testing.T, waits bool) {
		t.Run("somebody releases it", func(t *testing.T) {
			d := startBound(t, waits)
			c := d.caller(t)
			c.bind("brief=a,request_id=1")
			number := c.bind("brief=a,request_id=2")
			release(t, d.Daemon, "brief=a,request_id=2")
			if lost := c.awaitLost(); len(lost) != 1 || lost[0] != number {
				t.Errorf("%d are lost, want %d", lost, number)
			}
			if got := d.free("brief=a"); got != 1 {
				t.Errorf("%d are free, want 1", got)
			}
			d.store.awaitTakes(t, "1", 2)
		})
		t.Run("it lapses, and others have it", func(t *testing.T) {
			d := startBound(t, waits)
			c := d.caller(t)
			number := c.bind("brief=a,request_id=1")
			d.store.fails.Store(true)
			d.store.awaitTakes(t, "1", 2)
			d.Clock.Move(time.Second)
			for _, holder := range []string{"x", "y"} { // as another daemon lets them
				d.takeDirectly(t, "brief=a,request_id="+holder)
			}
			d.store.fails.Store(false)
			if lost := c.awaitLost(); len(lost) != 1 || lost[0] != number {
				t.Errorf("%d are lost, want %d", lost, number)
			}
		})
		t.Run("it lapses, and there is room", func(t *testing.T) {
			d := startBound(t, waits)
			c := d.caller(t)
			c.bind("brief=a,request_id=1")
			d.store.fails.Store(true)
			d.store.awaitTakes(t, "1", 2)
			d.Clock.Move(time.Second)
			d.store.fails.Store(false)
			d.store.awaitTakes(t, "1", 3)
			if got := d.free("brief=a"); got != 1 {
				t.Errorf("%d are free, want 1", got)
			}
			c.end()
			if got := d.free("brief=a"); got != 2 || len(c.lost) != 0 {
				t.Errorf("%d are free in the end, want 2; %d are lost", got, c.lost)
			}
		})
	})
}

// takeDirectly takes from the store behind the watched one.
func (d *boundDaemon) takeDirectly(t *testing.T, descriptor string) {
	t.Helper()
	var entries []bucket.Entry
	for _, e := range servertest.Taking(descriptor).GetDescriptors()[0].GetEntries() {
		entries = append(entries, bucket.Entry{Key: e.GetKey(), Value: e.GetValue()})
	}
	last := len(entries) - 1
	holder := entries[last].Value
	limit := d.Live.Rules().Domain("api").Match(entries).Limits[0]
	entries[last].Value = ""
	subject := bucket.AppendSubject(nil, "api", entries)
	decisions := make([]bucket.Decision, 1)
	hit := bucket.Hit{Limit: limit, Key: limit.AppendKey(nil, subject), Place: subject, Cost: 1, Holder: holder}
	if err := d.store.Store.Take(t.Context(), []bucket.Hit{hit}, decisions); err != nil || !decisions[0].Allowed() {
		t.Fatalf("%s gets %v, %v", descriptor, decisions, err)
	}
}

// Renewals are no sign of requests that share a holder.
func TestRenewalsOfBoundSlotsAreNotSoon(t *testing.T) {
	eachWay(t, func(t *testing.T, waits bool) {
		d := startBound(t, waits, func(o *server.Options) {
			s := memstore.New(memstore.Options{MaxKeys: 1000}) // on the clock that is
			t.Cleanup(func() { _ = s.Close() })
			o.Store.(*watched).Store = s
		})
		c := d.caller(t)
		c.bind("brief=a,request_id=1")
		c.bind("brief=a,request_id=2")
		d.store.awaitTakes(t, "1", 8)
		c.end()
		counts := d.Live.Rules().Domain("api").Match([]bucket.Entry{{Key: "brief", Value: "a"}, {Key: "request_id", Value: "1"}}).Counts.Limit("brief", 0).Holders()
		if soon, renewed := counts.RenewedSoon.Load(), counts.Renewed.Load(); soon != 0 || renewed == 0 {
			t.Errorf("%d renewals were soon, and %d not", soon, renewed)
		}
	})
}

// A stream binds no more than it may, by number and by bytes; what is too much takes
// nothing.
func TestBoundSlotsAreBounded(t *testing.T) {
	eachWay(t, func(t *testing.T, waits bool) {
		for name, c := range map[string]struct {
			value string
			max   int
		}{
			"by number": {"", 8192},
			"by bytes":  {strings.Repeat("x", 50_000), accounts.MaxStreams / (4 * 50_000)},
		} {
			t.Run(name, func(t *testing.T) {
				d := startBound(t, waits)
				by := d.caller(t)
				bound := 0
				for ; bound <= c.max; bound++ {
					n := &ratelimitv1.NumberedTake{Take: servertest.Taking(fmt.Sprintf("many=a,request_id=%d%s", bound, c.value)), Bind: true}
					r := by.answer(by.send(n))
					if codes.Code(r.GetError().GetCode()) == codes.ResourceExhausted {
						break
					}
					if !r.GetResponse().GetAllowed() {
						t.Fatalf("take %d gets %v", bound, r)
					}
				}
				if bound > c.max || bound < c.max*9/10 {
					t.Errorf("%d were bound, want nearly %d", bound, c.max)
				}
				if got := d.free("many=a"); got != uint64(10_000-bound) {
					t.Errorf("%d are free with %d bound", got, bound)
				}
				// There is room again for what was released, and for all at the end.
				by.release(false, "many=a,request_id=0"+c.value)
				by.bind("many=a,request_id=again" + c.value)
				by.end()
				if got := d.free("many=a"); got != 10_000 {
					t.Errorf("%d are free in the end", got)
				}
				by = d.caller(t)
				by.bind("many=a,request_id=1" + c.value)
			})
		}
	})
}

// What is bound to a stream can be released there, and is freed with it, by those who may
// only take.
func TestBoundSlotsNeedNoRightToRefund(t *testing.T) {
	t.Parallel()
	path := filetest.Write(t, t.TempDir(), "callers.yaml", "- {name: shop, sha256: "+servertest.SumOf("shop's")+", domains: [api]}\n"+
		"- {name: desk, sha256: "+servertest.SumOf("desk's")+", domains: [api]}\n")
	live := access.NewLiveCallers(path, slog.New(slog.DiscardHandler))
	if err := live.Reload(); err != nil {
		t.Fatal(err)
	}
	d := startBound(t, false, func(o *server.Options) { o.Requests.Callers = live })
	as := func(token string) *caller {
		ctx, cancel := context.WithTimeout(servertest.WithToken(context.Background(), token), servertest.Patience)
		t.Cleanup(cancel)
		s, err := d.API().TakeStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return &caller{t: t, stream: s, cancel: cancel}
	}
	free := func(by *caller) uint64 {
		return by.answer(by.send(&ratelimitv1.NumberedTake{Take: servertest.Taking("tenant=a,request_id=look:0")})).GetResponse().GetLimits()[0].GetRemaining()
	}
	shop, desk := as("shop's"), as("desk's")
	shop.bind("tenant=a,request_id=1")
	shop.bind("tenant=a,request_id=2")
	if r := desk.release(false, "tenant=a,request_id=1"); codes.Code(r.GetError().GetCode()) != codes.PermissionDenied {
		t.Errorf("a release of another's slot gets %v", r)
	}
	if r := shop.release(false, "tenant=a,request_id=1"); r.GetReleased().GetLimits()[0].GetReleased() != ratelimitv1.Released_RELEASED_SLOT {
		t.Errorf("a release of one's own gets %v", r)
	}
	if got := free(desk); got != 1 {
		t.Errorf("%d are free, want 1", got)
	}
	shop.end()
	if got := free(desk); got != 2 {
		t.Errorf("%d are free in the end, want 2", got)
	}
}
