package replay_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
	"github.com/ratelimitd/ratelimitd/internal/replay"
	"github.com/ratelimitd/ratelimitd/internal/server/record"
)

// recorder is a decider in memory whose decisions are written down.
type recorder struct {
	t        testing.TB
	clock    int64
	table    *assign.Table
	store    *memstore.Store
	deciders []*decide.Decider
	texts    []string
	rules    []*rules.Set
	inForce  int
	settings *decisionlog.Settings
	recorder *record.Recorder
	log      []byte
}

// began is the first moment of a recorder.
var began = time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC).UnixMicro()

func rulesOf(t testing.TB, text string) *rules.Set {
	t.Helper()
	rules, err := limitsfile.Options{}.Load(filetest.Write(t, t.TempDir(), "limits.yaml", text))
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// newRecorder returns one with sets of limits, of which the first is in force.
func newRecorder(t testing.TB, limits ...string) *recorder {
	t.Helper()
	r := &recorder{t: t, clock: began, table: assign.NewTable(), texts: limits}
	now := func() int64 { return atomic.LoadInt64(&r.clock) }
	r.recorder = record.New(record.Options{
		Sinks: []record.Sink{r}, Allowed: 1, Denied: 1, Thinned: prometheus.NewCounter(prometheus.CounterOpts{Name: "thinned"}), Now: now,
	})
	r.store = memstore.New(memstore.Options{MaxKeys: 1e6, Clock: now, Ordered: true})
	t.Cleanup(func() { r.store.Close() })
	for _, text := range limits {
		set := rulesOf(t, text)
		r.rules = append(r.rules, set)
		r.deciders = append(r.deciders, decide.New(decide.Options{
			Live: rules.Fixed(set), Store: r.store, Refuses: func() error { return nil }, Assigned: r.table,
			Now:            now,
			Bounds:         decide.Bounds{Descriptors: 100, Entries: 32, Bytes: 1 << 20},
			UnknownDomains: new(atomic.Uint64),
			OwnLimits:      decide.NewResults(prometheus.NewCounterVec(prometheus.CounterOpts{Name: "own"}, []string{"result"})),
		}))
	}
	r.reload(0)
	return r
}

// Write implements record.Sink.
func (r *recorder) Write(line []byte, _ int64, _ bucket.SpanRef) { r.log = append(r.log, line...) }

// write writes a line to the log.
func (r *recorder) write(l *decisionlog.Line) { r.log = append(l.AppendJSON(r.log), '\n') }

func (r *recorder) reload(i int) {
	r.inForce = i
	r.write(&decisionlog.Line{
		Kind: decisionlog.Loaded, At: r.clock, Limits: r.rules[i].Fingerprint(), Settings: r.settings, Files: []decisionlog.File{{Name: "limits.yaml", Text: r.texts[i]}},
	})
}

// restart has the daemon go on with other settings. Its state is in Redis, say.
func (r *recorder) restart(s decisionlog.Settings) {
	r.settings = &s
	for _, d := range r.deciders {
		d.Modes = decide.Modes{Shadow: s.ShadowMode, Quota: s.QuotaMode, DenyUnmatched: s.DenyUnmatched}
	}
	r.reload(r.inForce)
}

func (r *recorder) after(us int64) { atomic.AddInt64(&r.clock, us) }

// take decides descriptors and writes the line.
func (r *recorder) take(descriptors ...decide.Descriptor) *decide.Call {
	r.t.Helper()
	return r.takeAs("", "", descriptors...)
}

// takeAs takes with an ID of a caller.
func (r *recorder) takeAs(id, owner string, descriptors ...decide.Descriptor) *decide.Call {
	r.t.Helper()
	d := r.deciders[r.inForce]
	c := d.NewCall()
	c.Domain, c.ID, c.Owner = "d", id, owner
	if id != "" {
		c.SettleWithin, c.HasSettleWithin = 20*time.Second, true
	}
	c.Descriptors = append(c.Descriptors, descriptors...)
	if err := c.Check(true); err != nil {
		r.t.Fatal(err)
	}
	if err := d.Decide(context.Background(), c); err != nil {
		r.t.Fatal(err)
	}
	r.recorder.Record(&record.Request{Call: c, API: "grpc"})
	return c
}

// settle settles an ID of a caller and writes the line.
func (r *recorder) settle(id, owner string, descriptors ...decide.Descriptor) {
	r.t.Helper()
	d := r.deciders[r.inForce]
	c := d.NewCall()
	c.Domain, c.ID, c.Owner, c.IsSettlement = "d", id, owner, true
	c.Descriptors = append(c.Descriptors, descriptors...)
	if err := c.Check(true); err != nil {
		r.t.Fatal(err)
	}
	if err := d.Settle(context.Background(), c); err != nil {
		r.t.Fatal(err)
	}
	r.recorder.Record(&record.Request{Call: c, API: "api_grpc"})
}

// giveBack gives a take back and writes the line.
func (r *recorder) giveBack(taken *decide.Call) {
	r.t.Helper()
	d := r.deciders[r.inForce]
	var all []decide.Taken
	for i := range taken.Outcomes {
		for j := range taken.Outcomes[i].Decisions {
			all = append(all, taken.Taken(&taken.Outcomes[i], j))
		}
	}
	c := d.NewCall()
	c.Domain, c.ID, c.Owner = "d", taken.ID, taken.Owner
	c.Descriptors = append(c.Descriptors, taken.Descriptors...)
	if err := c.Check(true); err != nil {
		r.t.Fatal(err)
	}
	if err := d.GiveBack(context.Background(), c, all, true); err != nil {
		return // the limits have changed
	}
	takenAt := make([]int64, len(all))
	for i := range all {
		takenAt[i] = all[i].At
	}
	r.recorder.Record(&record.Request{Call: c, API: "api_grpc", IsGivenBack: true, TakenAt: takenAt})
}

// asking returns a descriptor of "key=value,key=value" that costs so much.
func asking(text string, cost int64) decide.Descriptor {
	d := decide.Descriptor{HitsAddend: uint64(max(cost, -cost)), HasHitsAddend: true, Refund: cost < 0}
	for _, part := range strings.Split(text, ",") {
		key, value, _ := strings.Cut(part, "=")
		d.Entries = append(d.Entries, bucket.Entry{Key: key, Value: value})
	}
	return d
}

// logOf returns a log of a text.
func logOf(t testing.TB, text []byte, f replay.Format) *replay.Log {
	t.Helper()
	return logOfReader(t, bytes.NewReader(text), f)
}

func logOfReader(t testing.TB, text io.Reader, f replay.Format) *replay.Log {
	t.Helper()
	l, err := replay.NewLog("test.log", io.NopCloser(text), f, replay.DefaultWindow)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// replayed replays logs of decisions.
func replayed(t testing.TB, o replay.Options, texts ...[]byte) *replay.Report {
	t.Helper()
	r, err := replay.New(o)
	if err != nil {
		t.Fatal(err)
	}
	var logs []*replay.Log
	for _, text := range texts {
		logs = append(logs, logOf(t, text, replay.Decisions()))
	}
	if err := r.Run(logs...); err != nil {
		t.Fatal(err)
	}
	return r.Report()
}

const allAlgorithms = `domain: d
descriptors:
  - {key: token, rate_limit: {algorithm: token_bucket, requests: 7, period: 1s, burst: 12}}
  - {key: gcra, rate_limit: {algorithm: gcra, requests: 30, period: 1m}}
  - {key: leaky, rate_limit: {algorithm: leaky_bucket, requests: 9, period: 2s, burst: 3}}
  - {key: fixed, rate_limit: {algorithm: fixed_window, requests: 10, period: 1s}}
  - {key: sliding, rate_limit: {algorithm: sliding_window, requests: 10, period: 2s}}
  - {key: log, rate_limit: {algorithm: sliding_log, requests: 10, period: 2s}}
  - {key: postpaid, rate_limit: {requests: 20, period: 1s, postpaid: true}}
  - {key: report, rate_limit: {requests_per_unit: 20, unit: second}}
  - {key: shadow, shadow_mode: true, rate_limit: {requests: 2, period: 1s}}
  - {key: quota, quota_mode: true, rate_limit: {requests: 4, period: 1s}}
  - {key: quota2, quota_mode: true, rate_limit: {requests: 5, period: 1s}}
  - {key: large, rate_limit: {requests: 1000000000, period: 1d}}
  - {key: block, rate_limit: {algorithm: fixed_window, requests: 10, period: 1s, block_for: 3s}}
  - {key: free, rate_limit: {unlimited: true}}
  - key: tenant
    plans:
      free: {name: second, requests: 3, period: 1s}
      pro: [{name: second, requests: 10, period: 1s}, {name: minute, requests: 30, period: 1m}]
    plan: free
  - key: several
    rate_limits:
      - {name: second, requests: 5, period: 1s}
      - {name: minute, requests: 40, period: 1m, algorithm: sliding_window}
      - {name: tried, requests: 2, period: 1s, shadow_mode: true}
      - {name: half, requests: 3, period: 1s, enforce: 50%}
`

// randomTrace records requests on a few subjects, with a reload in the middle.
func randomTrace(t testing.TB, seed uint64, n int) *recorder {
	return traceWith(t, seed, n, func(*recorder, int) {})
}

// restartingTrace is one with restarts of the daemon, each with other settings.
func restartingTrace(t testing.TB, seed uint64, n int) *recorder {
	return traceWith(t, seed, n, func(r *recorder, i int) {
		switch i {
		case n / 4:
			r.restart(decisionlog.Settings{QuotaMode: true})
		case 5 * n / 8:
			r.restart(decisionlog.Settings{ShadowMode: true, DenyUnmatched: true})
		case 3 * n / 4:
			r.restart(decisionlog.Settings{DenyUnmatched: true})
		case 7 * n / 8:
			r.restart(decisionlog.Settings{})
		}
	})
}

// traceWith is randomTrace with what happens before request i.
func traceWith(t testing.TB, seed uint64, n int, happens func(r *recorder, i int)) *recorder {
	other := strings.NewReplacer("requests: 10,", "requests: 6,", "burst: 12", "burst: 20", "requests: 40", "requests: 25").Replace(allAlgorithms)
	r := newRecorder(t, allAlgorithms, other)
	random := rand.New(rand.NewPCG(seed, 0))
	keys := []string{"token", "gcra", "leaky", "fixed", "sliding", "log", "postpaid", "report", "shadow", "quota", "quota2", "large", "block", "free", "tenant", "several", "none"}
	for _, a := range []assign.Assignment{
		{Base: assign.Layer{Terms: assign.Terms{Plan: "pro"}}},
		{Base: assign.Layer{Terms: assign.Terms{Numbers: []assign.Numbers{{Limit: "second", Requests: 6, Burst: 8, BlockFor: time.Second}}}}},
		{Base: assign.Layer{Terms: assign.Terms{Unlimited: true}}},
		{Layers: []assign.Layer{{Terms: assign.Terms{Blocked: true}, Until: began + 20e6}}},
		{Base: assign.Layer{Terms: assign.Terms{Plan: "gone"}}},
		{Layers: []assign.Layer{
			{Terms: assign.Terms{Plan: "pro"}, Until: began + 50e6},
			{Terms: assign.Terms{Numbers: []assign.Numbers{{Limit: "second", Requests: 6, Burst: 8}}}, Until: began + 30e6},
			{Terms: assign.Terms{Unlimited: true}, Until: began + 10e6},
		}},
	} {
		a.Subject = assign.Subject{Domain: "d", Entries: []bucket.Entry{{Key: "tenant", Value: fmt.Sprint(r.table.Len())}}}
		r.table.Put(&a)
	}
	var takes []*decide.Call
	for i := range n {
		if i == n/2 {
			r.reload(1)
		}
		happens(r, i)
		r.after(random.Int64N(100_000) * random.Int64N(2))
		if len(takes) > 0 && random.IntN(12) == 0 {
			r.giveBack(takes[len(takes)-1])
			takes = takes[:len(takes)-1]
			continue
		}
		var descriptors []decide.Descriptor
		for range 1 + random.IntN(3) {
			d := asking(fmt.Sprintf("%s=%d", keys[random.IntN(len(keys))], random.IntN(6)), []int64{1, 1, 1, 2, 5, 0, -1, -3, 30}[random.IntN(9)])
			d.Reports, d.IsDoubtful = random.IntN(3) == 0, random.IntN(4) == 0
			if random.IntN(15) == 0 {
				d.Own = decide.Override{Set: true, Requests: uint64(3 + random.IntN(5)), Period: time.Duration(1+random.IntN(2)) * time.Second, Names: &decide.OwnNames{Whole: "numbers"}}
			}
			descriptors = append(descriptors, d)
		}
		id, owner := fmt.Sprint(random.IntN(4)), []string{"", "shop"}[random.IntN(2)]
		switch random.IntN(6) {
		case 0, 1:
			takes = append(takes, r.takeAs(id, owner, descriptors...))
		case 2:
			descriptors = append(descriptors, asking("fixed=1", int64(random.IntN(9))))
			for j := range descriptors {
				d := &descriptors[j]
				d.Refund, d.Reports, d.IsDoubtful = false, false, false
				d.HasHitsAddend = j == len(descriptors)-1 || random.IntN(4) > 0
			}
			r.settle(id, owner, descriptors...)
		default:
			takes = append(takes, r.take(descriptors...))
		}
	}
	return r
}

// limitOf is a file of one limit.
func limitOf(algorithm string, requests, burst int64) string {
	numbers := fmt.Sprintf("algorithm: %s, requests: %d, period: 1s", algorithm, requests)
	if burst > 0 {
		numbers += fmt.Sprintf(", burst: %d", burst)
	}
	return "domain: d\ndescriptors:\n  - {key: user, rate_limit: {" + numbers + "}}\n"
}

// textOf is a report as people read it.
func textOf(t testing.TB, r *replay.Report) string {
	t.Helper()
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}
