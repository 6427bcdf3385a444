package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// server is a daemon that rows run on, with the store it keeps its state in.
type server struct {
	name string
	// redis is how many masters it has: 0 for the memory store.
	redis int
	flags []string
	// traced is whether it sends spans to the lab's collector.
	traced bool
	// recorded is whether it writes denials to the log of decisions.
	recorded bool
	// fill is how many keys are put into it before anything is measured.
	fill int
	// assigned is how many users are assigned numbers of their own beforehand.
	assigned int
	// lease is that of the limits that have one, or empty: builds that know no leases
	// serve all other rows.
	lease string
	// binary is another build of the daemon, or empty.
	binary string
}

const million = 1_000_000

var (
	memory        = &server{name: "memory"}
	memoryMillion = &server{name: "memory, a million keys", flags: []string{"--memory-max-keys", "2000000"}, fill: million}
	memoryTraced  = &server{name: "memory, with spans", traced: true}
	unwatched     = &server{name: "memory, without tops", flags: []string{"--top-subjects", "off"}}
	watched       = &server{name: "memory, with spans, tops, a log of denials", traced: true, recorded: true}
	single        = &server{name: "one Redis", redis: 1}
	unbatched     = &server{name: "one Redis, unbatched", redis: 1, flags: []string{"--redis-batch-size", "1"}}
	cluster       = &server{name: "three masters", redis: clusterMasters}
	assigned      = &server{name: "three masters, 100,000 assignments", redis: clusterMasters, assigned: 100_000}
	lending       = &server{name: "memory, with leases", lease: "100ms"}
	lendingRedis  = &server{name: "one Redis, with leases", redis: 1, lease: "100ms"}
)

// row is one case of the table.
type row struct {
	name string
	// says is what the row shows.
	says   string
	server *server
	load   load
	// halfPeak is whether requests arrive at half the rate that as many
	// callers reach, whether answered or not.
	halfPeak bool
	// rate is how many requests arrive a second, answered or not; 0: callers wait.
	rate float64
}

// atBare is the row for a server that knows Envoy's RPC alone: it gets as many
// callers as the row has requests in flight.
func (r row) atBare() row {
	r.load.callers, r.load.door, r.load.together = r.load.inFlight(), envoyDoor, 0
	return r
}

// group is a list of rows that are compared with each other, and so take turns; the bare
// servers among them get the first row's load.
type group []row

// Names of rows that targets are about.
const (
	rowMemory         = "memory-256"
	rowMillion        = "memory-million-keys"
	rowRedis          = "redis-256"
	rowRedisUnbatched = "redis-256-unbatched"
	rowOne            = "redis-1"
	rowOneUnbatched   = "redis-1-unbatched"
	rowHotUnder       = "redis-hot-under"
	rowHotOver        = "redis-hot-over"
	rowHalfPeak       = "redis-half-peak"
	rowStream         = "take-stream"
	rowUntraced       = "traces-off"
	rowTraced         = "traces-1-percent"
	rowUnwatched      = "watched-off"
	rowWatched        = "watched"
	rowUnassigned     = "cluster-64"
	rowAssigned       = "assigned-64"
	rowReassigned     = "assigned-64-changing"
	rowLeaseHot       = "lease-hot"
	rowUnleasedHot    = "lease-hot-without"
	rowLeaseOver      = "lease-over"
	rowLeaseMany      = "lease-10k"
	rowUnleasedMany   = "lease-10k-without"
	rowLeasePaced     = "lease-paced"
	rowUnleasedPaced  = "lease-paced-without"
)

const population = 10_000

func evenLoad(callers int) load {
	return load{keys: even, key: "user", population: population, descriptors: 1, callers: callers}
}

func zipfLoad(callers int) load {
	l := evenLoad(callers)
	l.keys = zipf
	return l
}

func hotLoad(callers int) load {
	return load{keys: hotUnder, key: "hot", population: 1, hot: 1, descriptors: 1, callers: callers}
}

func overLoad(callers int) load {
	return load{keys: hotOver, key: "over", population: 1, hot: 1, descriptors: 1, callers: callers}
}

func (l load) withDescriptors(n int) load {
	l.descriptors = n
	return l
}

// throughDoor makes this many callers send this many requests at a time.
func (l load) throughDoor(d door, callers, together int) load {
	l.door, l.callers, l.together = d, callers, together
	return l
}

// reassigned makes assignments change meanwhile.
func (l load) reassigned() load {
	l.reassigns = true
	return l
}

// sampled makes each request carry its caller's span, one of a hundred sampled.
func (l load) sampled() load {
	l.isSampled = true
	return l
}

func millionLoad(callers int) load {
	return load{keys: even, key: "account", population: million, descriptors: 1, callers: callers}
}

// leaseLoad is that of 256 callers in 8 processes.
func leaseLoad(d door, keys keys, key string, population int) load {
	return load{keys: keys, key: key, population: population, hot: 1, descriptors: 1, callers: 256, door: d}
}

// pacedLoad asks for each key 100 times a second, all from one process, at pacedRate.
func pacedLoad(d door) load {
	l := leaseLoad(d, even, "leased", pacedRate/100)
	l.isApart = true
	return l
}

// pacedRate leaves two processors time to spare: callers that wait for one ask all at once.
const pacedRate = 4000

// usualRows are those of the default run.
func usualRows() []group {
	return []group{
		{
			{name: rowMemory, server: memory, load: evenLoad(256), says: "a busy daemon without Redis: 256 callers, 10,000 keys"},
			{name: rowMillion, server: memoryMillion, load: millionLoad(256), says: "the same with a million keys in memory"},
		},
		{{name: "memory-1", server: memory, load: evenLoad(1), says: "the least that a decision takes: one caller, no Redis"}},
		{
			{name: rowRedis, server: single, load: evenLoad(256), says: "a busy daemon on one Redis: 256 callers, 10,000 keys"},
			{name: rowRedisUnbatched, server: unbatched, load: evenLoad(256), says: "the same where each request is a call of its own"},
		},
		{{name: "redis-16", server: single, load: evenLoad(16), says: "a daemon with little to do: 16 callers"}},
		{
			{name: rowOne, server: single, load: evenLoad(1), says: "what Redis adds to a single request: one caller"},
			{name: rowOneUnbatched, server: unbatched, load: evenLoad(1), says: "the same where each request is a call of its own"},
		},
		{{name: "redis-zipf", server: single, load: zipfLoad(256), says: "some keys far busier than others: Zipf 1.1 over 10,000"}},
		{{name: rowHotUnder, server: single, load: hotLoad(256), says: "everybody asks for one key, which is under its limit"}},
		{{name: rowHotOver, server: single, load: overLoad(256), says: "everybody asks for one key, which is over its 100 an hour"}},
		{{name: "redis-3-descriptors", server: single, load: evenLoad(256).withDescriptors(3), says: "three limits in each request"}},
		{{name: "cluster-256", server: cluster, load: evenLoad(256), says: "a busy daemon on a Redis Cluster of three masters"}},
		{{name: rowStream, server: memory, load: evenLoad(0).throughDoor(streamDoor, 4, 64), says: "the daemon's own API: 256 in flight on 4 streams"}},
		{{name: "take-stream-redis", server: single, load: evenLoad(0).throughDoor(streamDoor, 4, 64), says: "the same on one Redis"}},
		{
			{name: rowUntraced, server: memory, load: evenLoad(256).sampled(), says: "what a busy Envoy sends that samples 1 % of its requests, without spans here"},
			{name: rowTraced, server: memoryTraced, load: evenLoad(256).sampled(), says: "the same with a span for each that is sampled"},
		},
		{
			{name: rowUnwatched, server: unwatched, load: evenLoad(256).sampled(), says: "without what is on in the next row, beside the counts and the times of requests"},
			{name: rowWatched, server: watched, load: evenLoad(256).sampled(), says: "1 % of the requests traced, tops of denials, a log of denials: nothing is denied"},
		},
		{
			{name: "denied-watched-off", server: unwatched, load: overLoad(256).sampled(), says: "the same where all is denied, to one caller"},
			{name: "denied-watched", server: watched, load: overLoad(256).sampled(), says: "with tops and the log, which has ten lines a second of it"},
		},
		{
			{name: rowUnassigned, server: cluster, load: evenLoad(64), says: "64 callers on a Redis Cluster of three masters"},
			{name: rowAssigned, server: assigned, load: evenLoad(64), says: "the same with numbers of its own for each user, and 100,000 such assignments"},
			{name: rowReassigned, server: assigned, load: evenLoad(64).reassigned(), says: "the same while five of them change each second"},
		},
		{{name: "take-many-10", server: memory, load: evenLoad(0).throughDoor(manyDoor, 25, 10), says: "calls of 10 requests each, 25 at a time"}},
		{{name: "take-many-100", server: memory, load: evenLoad(0).throughDoor(manyDoor, 4, 100), says: "calls of 100 requests each, 4 at a time"}},
		{
			{name: rowLeaseHot, server: lendingRedis, load: leaseLoad(leaseDoor, hotUnder, "leased", 1), says: "the Go client in 8 processes, 256 callers: one key, decided by leases of 100 ms"},
			{name: rowUnleasedHot, server: lendingRedis, load: leaseLoad(unleasedDoor, hotUnder, "leased", 1), says: "the same without leases"},
		},
		{{name: rowLeaseOver, server: lendingRedis, load: leaseLoad(leaseDoor, hotOver, "leased-over", 1), says: "the same with leases, over its 100 an hour"}},
		{
			{name: rowLeaseMany, server: lending, load: leaseLoad(leaseDoor, even, "leased", population), says: "10,000 keys, each too rare in each process for leases"},
			{name: rowUnleasedMany, server: lending, load: leaseLoad(unleasedDoor, even, "leased", population), says: "the same without leases"},
		},
		{
			{name: rowLeasePaced, server: lending, load: pacedLoad(leaseDoor), rate: pacedRate, says: "10 requests for each key in a lease, from one process"},
			{name: rowUnleasedPaced, server: lending, load: pacedLoad(unleasedDoor), rate: pacedRate, says: "the same without leases"},
		},
		{{name: rowHalfPeak, server: single, load: evenLoad(256), halfPeak: true, says: "latency at half the peak: Poisson arrivals, answered or not"}},
	}
}

// allRows are the usual ones, and every store with all kinds of keys,
// descriptors and callers.
func allRows() []group {
	groups := usualRows()
	for _, s := range []struct {
		name   string
		server *server
	}{{"memory", memory}, {"redis", single}, {"cluster", cluster}} {
		for _, k := range []struct {
			keys keys
			load func(int) load
		}{{even, evenLoad}, {zipf, zipfLoad}, {hotUnder, hotLoad}, {hotOver, overLoad}} {
			for _, descriptors := range []int{1, 3} {
				for _, callers := range []int{1, 16, 256} {
					groups = append(groups, group{{
						name:   fmt.Sprintf("%s-%s-%dd-%d", s.name, k.keys, descriptors, callers),
						says:   fmt.Sprintf("%s, keys %s, descriptors %d, callers %d", s.server.name, k.keys, descriptors, callers),
						server: s.server,
						load:   k.load(callers).withDescriptors(descriptors),
					}})
				}
			}
		}
	}
	return groups
}

// selectRows returns the rows whose names match, each with its own key if all callers ask
// for one.
func selectRows(groups []group, name *regexp.Regexp) []group {
	var selected []group
	n := 0
	for _, g := range groups {
		var rows group
		for _, r := range g {
			n++
			if name.MatchString(r.name) {
				r.load.hot = n
				rows = append(rows, r)
			}
		}
		if len(rows) > 0 {
			selected = append(selected, rows)
		}
	}
	return selected
}

const domain = "bench"

// maxDescriptors is the most descriptors that a row's request has.
const maxDescriptors = 3

// Limits are per year or, for over, per hour: envoyproxy/ratelimit knows both units. The
// states of limits per year do not expire between two requests, as those of limits that
// refill at once would.
var limits = []struct {
	key, unit string
	requests  int64
	isLeased  bool
}{
	{key: "user", unit: "year", requests: 10_000_000},
	{key: "account", unit: "year", requests: 100_000},
	{key: "hot", unit: "year", requests: 1_000_000_000},
	{key: "over", unit: "hour", requests: overLimit},
	{key: "leased", unit: "second", requests: 100_000_000, isLeased: true},
	{key: "leased-over", unit: "hour", requests: overLimit, isLeased: true},
}

// overLimit is how many requests an hour the row "over its limit" has.
const overLimit = 100

// limitsFile returns the limits file of all rows. Without an algorithm it is
// one that envoyproxy/ratelimit loads as well, if there is no lease either.
func limitsFile(algorithm, lease string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain: %s\n", domain)
	if algorithm != "" {
		fmt.Fprintf(&b, "algorithm: %s\n", algorithm)
	}
	b.WriteString("descriptors:\n")
	for _, l := range limits {
		more := ""
		if l.isLeased && lease != "" {
			more = ", lease: " + lease
		}
		for i := range maxDescriptors {
			fmt.Fprintf(&b, "  - key: %s\n    rate_limit: {unit: %s, requests_per_unit: %d%s}\n", descriptorKey(l.key, i), l.unit, l.requests, more)
		}
	}
	return b.String()
}

// descriptorKey is the key of a request's i-th descriptor: each descriptor of
// a request has a limit of its own.
func descriptorKey(key string, i int) string {
	if i == 0 {
		return key
	}
	return fmt.Sprintf("%s-%d", key, i+1)
}

// filled is what keys did to a daemon's memory.
type filled struct {
	keys int
	// heap is how many live bytes of Go's heap the keys added, resident how many bytes of
	// the process, including garbage and spare room.
	heap, resident int64
}

// keysPerRequest is how many keys a daemon accepts in one request by default.
const keysPerRequest = 100

// fill takes once from each of n accounts.
func (d *daemon) fill(ctx context.Context, n int) (filled, error) {
	f := filled{keys: n}
	heap, err := d.heap(ctx)
	if err != nil {
		return f, err
	}
	size, err := resident(d.process.pid())
	if err != nil {
		return f, err
	}
	conn, err := grpc.NewClient(d.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return f, err
	}
	defer conn.Close()
	client := rlsv3.NewRateLimitServiceClient(conn)
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(16)
	for first := 0; first < n; first += keysPerRequest {
		all.Go(func() error {
			r := &rlsv3.RateLimitRequest{Domain: domain}
			for i := first; i < min(first+keysPerRequest, n); i++ {
				r.Descriptors = append(r.Descriptors, descriptor("account", value(i)))
			}
			_, err := client.ShouldRateLimit(ctx, r)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return f, err
	}
	after, err := d.heap(context.WithoutCancel(ctx))
	if err != nil {
		return f, err
	}
	sizeAfter, err := resident(d.process.pid())
	f.heap, f.resident = after-heap, sizeAfter-size
	return f, err
}

// heap returns the bytes of the daemon's heap that are in use, after a garbage
// collection.
func (d *daemon) heap(ctx context.Context) (int64, error) {
	n, err := d.number(ctx, "/debug/pprof/heap?gc=1&debug=1", "# HeapAlloc")
	if err == nil && n == 0 {
		err = errors.New("the heap's profile has no HeapAlloc")
	}
	return n, err
}

// asks returns how many requests the daemon has counted.
func (d *daemon) asks(ctx context.Context) (int64, error) {
	return d.number(ctx, "/metrics", "ratelimitd_requests_total{")
}

// number returns the sum of the numbers at the ends of the lines of a page that begin so.
func (d *daemon) number(ctx context.Context, path, begin string) (sum int64, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.admin+path, nil)
	if err != nil {
		return 0, err
	}
	page, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer page.Body.Close()
	lines := bufio.NewScanner(page.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, begin) {
			continue
		}
		number, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64) // also 1.5e+06
		if err != nil {
			return 0, fmt.Errorf("%s: %w", r.URL, err)
		}
		sum += int64(number)
	}
	return sum, lines.Err()
}

// perKey is a key's share of the bytes.
func (f filled) perKey(bytes int64) float64 { return float64(bytes) / float64(f.keys) }
