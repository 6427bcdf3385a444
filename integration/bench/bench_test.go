package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ratelimitd/ratelimitd/internal/bucket/builttest"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
)

// TestMain lets the test's binary be the bare servers and the callers, as the program is.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && hidden[os.Args[1]] != nil {
		main()
		return
	}
	os.Exit(builttest.Run(func(binary string) int {
		if err := os.Setenv("TEST_DAEMON", binary); err != nil { // for the lab
			panic(err)
		}
		return m.Run()
	}))
}

// The smallest row, end to end: the lab, the load, and the tables.
func TestMemoryRow(t *testing.T) {
	var out, progress bytes.Buffer
	args := []string{"-run", "^memory-1$", "-starts", "2", "-rounds", "1", "-slice", "200ms", "-warm", "20ms"}
	if err := command(t.Context(), args, &out, &progress); err != nil {
		t.Fatalf("%v\n%s%s", err, &progress, &out)
	}
	var found []string
	for line := range strings.Lines(out.String()) {
		words := strings.Fields(line)
		if len(words) > 0 && words[0] == "memory-1" {
			found = append(found, line)
		}
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 140 {
			t.Errorf("%d columns wide: %s", n, line)
		}
	}
	if len(found) != 5 { // its line, what it tells, and three servers
		t.Fatalf("%d lines are about the row, want 5:\n%s", len(found), &out)
	}
	if n := len(strings.Fields(found[0])); n != 15 {
		t.Errorf("%d cells, want 15: %s", n, found[0])
	}
	if regexp.MustCompile(`NaN|Inf|%!`).MatchString(out.String()) {
		t.Errorf("a number is not one:\n%s", &out)
	}
}

// A build beside itself: each row has a line for each server, and the daemon's
// share of it with an interval.
func TestPair(t *testing.T) {
	other := os.Getenv("TEST_DAEMON")
	var out, progress bytes.Buffer
	args := []string{"-run", "^memory-1$", "-starts", "2", "-rounds", "1", "-slice", "200ms", "-warm", "20ms", "-pair", "before=" + other}
	if err := command(t.Context(), args, &out, &progress); err != nil {
		t.Fatalf("%v\n%s%s", err, &progress, &out)
	}
	ratio := regexp.MustCompile(`(?m)^memory-1 +before +[0-9]+ .* [0-9]+\.[0-9]{3}  +[0-9]+\.[0-9]{3}-[0-9]+\.[0-9]{3} +- +[0-9]+\.[0-9]{3}$`)
	if !ratio.Match(out.Bytes()) || bytes.Count(out.Bytes(), []byte("\nmemory-1 ")) != 3 {
		t.Errorf("found\n%s", &out)
	}
}

// The interval holds the median, and is narrow where all starts agree.
func TestInterval(t *testing.T) {
	same := slices.Repeat([]measures{{cpu: 0.9}}, 5)
	if low, high := interval(same); low != 0.9 || high != 0.9 {
		t.Errorf("%v to %v, want 0.9", low, high)
	}
	var spread []measures
	for i := range 21 {
		spread = append(spread, measures{cpu: float64(i)})
	}
	if low, high := interval(spread); low < 3 || low > 9 || high < 11 || high > 17 {
		t.Errorf("%v to %v around 10", low, high)
	}
}

// One lab for what needs one, on the goroutine that it belongs to.
func TestLab(t *testing.T) {
	l, err := openLab(t.Context(), nil, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	testCounts(t, l)
	testOpenLoop(t, l)
	testFill(t, l)
	testOverload(t, l)
	testRemotes(t, l)
}

// No answer is lost, and none is what it must not be.
func testCounts(t *testing.T, l *lab) {
	ctx := t.Context()
	for _, tc := range []struct {
		load load
		over bool
	}{
		{evenLoad(4), false},
		{zipfLoad(4), false},
		{hotLoad(2).withDescriptors(3), false},
		{overLoad(2), true},
	} {
		d, err := l.daemon(ctx, memory)
		if err != nil {
			t.Fatal(err)
		}
		s, err := newSubject(nameDaemon, d.grpc, d.process.pid(), nil, row{load: tc.load})
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		m, err := s.slice(ctx, 10*time.Millisecond, 100*time.Millisecond, 0)
		isShort := func() bool { return m.rate <= 0 || m.cpu <= 0 || m.own <= 0 || tc.over && s.answers() <= overLimit }
		for tries := 0; err == nil && isShort() && tries < 100; tries++ { // on a machine that is busy
			m, err = s.slice(ctx, 0, 100*time.Millisecond, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		if p := s.problems(); len(p) > 0 {
			t.Errorf("%s: %v", tc.load.keys, p)
		}
		if m.rate <= 0 || m.cpu <= 0 || m.own <= 0 || m.p50 <= 0 || m.p50 > m.p99 || m.p99 > m.p999 || !math.IsNaN(m.redis) {
			t.Errorf("%s: %+v", tc.load.keys, m)
		}
		var over int64
		for _, c := range s.callers {
			over += c.tally.over.Load()
		}
		if ok := s.answers() - over; tc.over != (over > 0) || tc.over && ok < overLimit {
			t.Errorf("%s: %d passed, %d were denied", tc.load.keys, ok, over)
		}
	}
}

// A server that is away is a problem of its row, not the end of the run.
func TestFailuresAreCounted(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	s, err := newSubject("away", address, 0, nil, row{name: "r", load: evenLoad(2)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	m, err := s.slice(t.Context(), 0, 50*time.Millisecond, 0)
	if err != nil {
		t.Fatal(err)
	}
	if p := s.problems(); s.answers() != 0 || m.rate != 0 || len(p) != 1 || !strings.HasPrefix(p[0].text, "r, away: ") || !p[0].wrong || s.failed() == 0 {
		t.Errorf("%d answers, rate %v, problems %v", s.answers(), m.rate, p)
	}
}

func testOpenLoop(t *testing.T, l *lab) {
	const rate, tries = 200, 10 // a machine that is busy answers few in a second
	for try := 1; ; try++ {
		s, err := newSubject(nameBare, l.bareAt, l.bare.pid(), nil, row{load: evenLoad(8)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		m, err := s.slice(t.Context(), 0, time.Second, rate)
		if err != nil {
			t.Fatal(err)
		}
		// Seven standard deviations either way.
		n := float64(s.answers())
		if n >= rate/2 && n <= 2*rate && m.p50 > 0 {
			return
		}
		if try == tries {
			t.Fatalf("%v answers in a second of %d arrivals a second: %+v", n, rate, m)
		}
	}
}

// Callers in processes of their own: all their answers are counted, and without leases
// the daemon counts the same.
func testRemotes(t *testing.T, l *lab) {
	ctx := t.Context()
	for _, tc := range []struct {
		row              string
		isLeased, isOver bool
	}{
		{row: rowUnleasedHot}, // before there are leases, which are given back later
		{row: rowUnleasedPaced},
		{row: rowLeaseHot, isLeased: true},
		{row: rowLeasePaced, isLeased: true},
		{row: rowLeaseOver, isOver: true},
	} {
		r := selectRows(usualRows(), regexp.MustCompile("^"+tc.row+"$"))[0][0]
		r.server = lending // without Redis
		s, d, err := l.subject(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		before, err := d.asks(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var m measures
		var over, asks int64
		isShort := func() bool {
			return m.rate <= 0 || m.cpu <= 0 || m.own <= 0 || math.IsNaN(m.p50) || tc.isOver && over == 0 || tc.isLeased && asks > s.answers()/2
		}
		for tries := 0; (tries == 0 || isShort()) && tries < 100; tries++ { // on a machine that is busy
			if m, err = s.slice(ctx, 10*time.Millisecond, 200*time.Millisecond, r.rate); err != nil {
				t.Fatal(err)
			}
			after, err := d.asks(ctx)
			if err != nil {
				t.Fatal(err)
			}
			asks, over = after-before, 0
			for _, c := range s.callers {
				over += c.tally.over.Load()
			}
		}
		if isShort() {
			t.Errorf("%s: %d requests, %d to the daemon, %d denied: %+v", tc.row, s.answers(), asks, over, m)
		}
		for _, p := range s.problems() {
			if p.wrong {
				t.Error(p.text)
			}
		}
		if !tc.isLeased && !tc.isOver && asks != s.answers() {
			t.Errorf("%s: the daemon counts %d of %d requests", tc.row, asks, s.answers())
		}
	}
}

func testFill(t *testing.T, l *lab) {
	d, err := l.daemon(t.Context(), &server{name: "filled", fill: 20_050})
	if err != nil {
		t.Fatal(err)
	}
	if f := d.filled; f.keys != 20_050 || f.heap < 20_050*32 {
		t.Errorf("%+v: a key takes more than its own bytes", f)
	}
}

func testOverload(t *testing.T, l *lab) {
	// A busy machine may answer nothing for a moment.
	const longest = 5 * time.Second
	for slice := 50 * time.Millisecond; ; slice *= 4 {
		o := overloaded{name: nameTuned}
		p := plan{rounds: 1, slice: slice, connect: 50 * time.Millisecond}
		if err := o.measure(t.Context(), l.tunedAt, l.bareTuned.pid(), 0, p); err != nil {
			t.Fatal(err)
		}
		if o.offered < o.sent || o.sent < o.answered || o.failedAfter > 0 {
			t.Fatalf("%+v", o)
		}
		if o.peak > 0 && o.sent > 0 && o.before > 0 && o.max >= o.before/2 && o.peakAfter > 0 {
			return
		}
		if slice > longest {
			t.Fatalf("%+v", o)
		}
	}
}

func TestRequest(t *testing.T) {
	r := newRequest("user", 3)
	r.set(1234567)
	r.set(42)
	var m rlsv3.RateLimitRequest
	if err := proto.Unmarshal(r.bytes, &m); err != nil {
		t.Fatal(err)
	}
	for i, d := range m.GetDescriptors() {
		e := d.GetEntries()
		if len(e) != 1 || e[0].GetKey() != descriptorKey("user", i) || e[0].GetValue() != value(42) {
			t.Errorf("descriptor %d is %v", i, d)
		}
	}
	if len(m.GetDescriptors()) != 3 || m.GetDomain() != domain {
		t.Errorf("the request is %v", &m)
	}
}

func TestReply(t *testing.T) {
	for _, want := range []reply{
		{},
		{code: rlsv3.RateLimitResponse_OK, statuses: 1},
		{code: rlsv3.RateLimitResponse_OVER_LIMIT, statuses: 3, degraded: true},
	} {
		m := &rlsv3.RateLimitResponse{OverallCode: want.code}
		for range want.statuses {
			m.Statuses = append(m.Statuses, newBare().responses[1].GetStatuses()[0])
		}
		if want.degraded {
			m.DynamicMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{"degraded": structpb.NewBoolValue(true)}}
		}
		text := marshal(m)
		for cut := range len(text) + 1 { // a message may come in several buffers
			var got reply
			data := mem.BufferSlice{mem.SliceBuffer(text[:cut]), mem.SliceBuffer(text[cut:])}
			if err := (rawCodec{}).Unmarshal(data, &got); err != nil || got != want {
				t.Fatalf("found %+v, %v, want %+v", got, err, want)
			}
		}
	}
	var got reply
	if err := got.parse([]byte{0x12, 0x7f}); err == nil {
		t.Error("a reply that is cut off is taken for one")
	}
}

// The quantiles are those of the sorted latencies, to within a bucket.
func TestHistogram(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var h histogram
	var all []float64
	for range 20_000 {
		ns := math.Exp(random.Float64() * 24)
		h.record(time.Duration(ns))
		all = append(all, math.Floor(ns)/1000)
	}
	slices.Sort(all)
	for _, q := range []float64{0.001, 0.5, 0.99, 0.999, 1} {
		want := all[int(math.Ceil(q*float64(len(all))))-1]
		if got := h.quantile(q); math.Abs(got-want) > want/100+0.001 {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	h.record(time.Hour)
	h.record(-1)
	if got := h.quantile(1); got < 130e6 {
		t.Errorf("an hour counts as %v us", got)
	}
	if got := new(histogram).quantile(0.5); !math.IsNaN(got) {
		t.Errorf("the median of nothing is %v", got)
	}
}

func TestLimitsFileLoads(t *testing.T) {
	for _, with := range [][2]string{{"", ""}, {"token_bucket", ""}, {"token_bucket", "100ms"}} {
		path := t.TempDir() + "/limits.yaml"
		if err := os.WriteFile(path, []byte(limitsFile(with[0], with[1])), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := limitsfile.Load(path); err != nil {
			t.Error(err)
		}
	}
}

func TestRows(t *testing.T) {
	seen := make(map[string]bool)
	hot := make(map[string]bool)
	for _, g := range selectRows(allRows(), regexp.MustCompile("")) {
		for _, r := range g {
			if seen[r.name] || r.says == "" || len(r.name) > 24 {
				t.Errorf("row %q: twice, too long, or it says nothing", r.name)
			}
			seen[r.name] = true
			if r.load.callers != g[0].load.callers || r.load.descriptors != g[0].load.descriptors {
				t.Errorf("row %s has another load than %s, whose bare servers it is compared with", r.name, g[0].name)
			}
			if k := fmt.Sprint(r.load.key, r.load.hot); r.load.keys == hotOver {
				if hot[k] {
					t.Errorf("row %s shares its key with another", r.name)
				}
				hot[k] = true
			}
		}
	}
	for _, name := range []string{rowMemory, rowMillion, rowRedis, rowRedisUnbatched, rowOne, rowOneUnbatched, rowHotUnder, rowHotOver, rowHalfPeak, rowUntraced, rowTraced,
		rowLeaseHot, rowUnleasedHot, rowLeaseOver, rowLeaseMany, rowUnleasedMany, rowLeasePaced, rowUnleasedPaced} {
		if !seen[name] {
			t.Errorf("a target is about %s, which is no row", name)
		}
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{
		{"memory"}, {"-starts", "0"}, {"-rounds", "0"}, {"-slice", "0s"}, {"-run", "("}, {"-run", "nothing-is-called-so"},
		{"-pair", "x"}, {"-pair", "x=/nowhere"}, {"-pair", "=" + os.Args[0]}, {"-full", "-pair", "x=" + os.Args[0], "-run", "nothing-is-called-so"}, {"-pair", "x=" + os.Args[0], "-overload"},
		{"-compare", "x"}, {"-compare", "=h:1"}, {"-compare", "x=h"}, {"-compare", "x=h:1,pid"},
	} {
		var out bytes.Buffer
		if err := command(context.Background(), args, &out, &out); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}

func TestTargets(t *testing.T) {
	for _, tc := range []struct {
		target target
		found  []float64 // below, at, and above the limit
		want   []bool
	}{
		{target{limit: 3}, []float64{2, 3, 4}, []bool{true, false, false}},
		{target{limit: 3, orEqual: true}, []float64{2, 3, 4}, []bool{true, true, false}},
		{target{limit: 3, isLeast: true}, []float64{2, 3, 4}, []bool{false, true, true}},
	} {
		for i, found := range tc.found {
			if tc.target.found = found; tc.target.met() != tc.want[i] {
				t.Errorf("%+v is met: %v", tc.target, !tc.want[i])
			}
		}
	}
}

func TestSmallNumbersAreShown(t *testing.T) {
	for v, want := range map[float64]string{0: "0.0", 0.004: "0.004", 0.96: "1.0", 12.34: "12.3", math.NaN(): "-"} {
		if got := number(v, 1); got != want {
			t.Errorf("%v is shown as %s, want %s", v, got, want)
		}
	}
}

func TestCountOfRedis(t *testing.T) {
	var r redisReading
	r.count("# Commandstats\r\ncmdstat_evalsha:calls=7,usec=9\r\ncmdstat_eval:calls=1,usec=9\r\ncmdstat_mget:calls=8,usec=1\r\n" +
		"cmdstat_script|load:calls=2,usec=1\r\ncmdstat_info:calls=5,usec=1\r\n")
	if r.scripts != 8 || r.commands != 10 {
		t.Errorf("%+v, want 8 scripts and 10 commands", r)
	}
}
