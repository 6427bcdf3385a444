package endpoint_test

import (
	"math"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// inNoAPI are the cases that no API can ask, with the reason.
var inNoAPI = map[string]string{
	"a check agrees with the take that follows":   "no API asks without taking",
	"a check of a group charges nothing":          "no API asks without taking",
	"each limit that denies starts its own pause": "no API says which denial began a pause",
	"equal keys take the stricter role":           "a role is that of a rule, and equal descriptors have one rule",
	"of equal keys the least capacity decides":    "numbers beyond those of a bucket's rule have a state of their own",
	"no hits": "a request has at least one descriptor, and one that no rule is for asks no store",
	"reloads": "stores are tested, and an API adds nothing to it",
}

// notInOurs are further cases that the daemon's own API cannot ask.
var notInOurs = map[string]string{
	"a bucket of reported use is charged beyond its burst": "its costs are no reports",
	"a window of reported use is over beyond its requests": "its costs are no reports",
	"a log of reported use remembers each charge":          "its costs are no reports",
	"a report is charged whatever the group gets":          "its costs are no reports",
	"what is not reported keeps its free denials":          "its costs are no reports",
	"a report and another hit of one key are a report":     "its costs are no reports",
}

// notInEnvoys are further cases that Envoy's RPC cannot ask.
var notInEnvoys = map[string]string{
	"a denied take gives nothing back":                "it has no give-back",
	"a give-back of a group with roles":               "it has no give-back",
	"a bucket gives back what was not refilled since": "it has no give-back",
	"a fixed window gives back into itself only":      "it has no give-back",
	"a log gives back the very stamp":                 "it has no give-back",
	"a sliding window gives back from the slot":       "it has no give-back",

	"a bucket gives nothing back of what was taken ahead of the clock": "it has no give-back",
	"a log gives nothing back of what was taken ahead of the clock":    "it has no give-back",

	"a hit aside has no say":                           "a descriptor in shadow mode is OK whatever its limit says",
	"what is not reported keeps its free denials":      "here each descriptor brings its own hits_addend, which is a report",
	"a report and another hit of one key are a report": "here each descriptor brings its own hits_addend, which is a report",

	"one quota is enough": "a descriptor's status tells of one limit",
}

// ways are all ways to ask, by name.
var ways = []struct {
	name  string
	open  func(d *servertest.Daemon) way
	envoy bool
}{
	{"TakeStream", openTakeStream, false},
	{"ShouldRateLimit", openEnvoy, true},
	{"POST json", openJSON, true},
	{"Take", openTake, false},
	{"TakeMany", openTakeMany, false},
	{"POST v1 take", openHTTPTake, false},
}

// TestAPIsConform runs the suite that every store passes over the ways that differ most: our
// stream, Envoy's call and JSON. The others read and write the same messages; make soak runs
// them too.
func TestAPIsConform(t *testing.T) {
	t.Parallel()
	memory := func(t *testing.T, clock func() int64) bucket.Store {
		s := memstore.New(memstore.Options{MaxKeys: 1e6, Clock: clock})
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	for _, c := range soaktest.Long(ways[:3], ways) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := buckettest.Harness{Traces: traces, Without: joined(inNoAPI, notInOurs), Sees: seenInTake, Asks: asAskedInTake}
			if c.envoy {
				h.Without, h.Sees, h.Asks = joined(inNoAPI, notInEnvoys), seenInEnvoys, asAskedInEnvoys
			}
			h.Open = func(t *testing.T, clock func() int64) bucket.Store {
				d := servertest.Start(t, "domain: d", servertest.On(memory(t, clock)), func(o *server.Options) { o.Requests.Bounds.Descriptors = 300 })
				// A store gives back takes from before a change. So do ways here, since
				// they are not told who took or what changed.
				d.Since = func() int64 { return 0 }
				return &wayStore{d: d, way: c.open(d), envoy: openEnvoy(d), inUnits: c.envoy}
			}
			buckettest.Run(t, h)
		})
	}
}

// traces is the number of random traces for each way.
var traces = soaktest.Long(4, 400)

// TestAPIsKeepHostileValuesApart asks about subjects that a careless encoding
// would mix up: no two share a limit. Each brings its own limit, so that no
// rule is needed.
func TestAPIsKeepHostileValuesApart(t *testing.T) {
	t.Parallel()
	l, err := bucket.NewLimit(bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 1, Period: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range ways {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := servertest.Start(t, "domain: d")
			through := c.open(d)
			for _, want := range []bool{true, false} {
				for _, entries := range buckettest.HostileSubjects() {
					if len(entries) == 0 || !utf8.ValidString(entries[0].Key+entries[0].Value) {
						continue // no limit applies, or it is no text
					}
					got, err := through.take(t.Context(), []asked{{entries: entries, cost: 1, numbers: l}})
					if err != nil {
						t.Fatalf("%.80q: %v", entries, err)
					}
					if got[0].Allowed() != want {
						t.Errorf("%.80q: allowed %v, want %v", entries, !want, want)
					}
				}
			}
		})
	}
}

func joined(a, b map[string]string) map[string]string {
	all := map[string]string{}
	for _, m := range []map[string]string{a, b} {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}

// isRefund reports whether a hit gives back by a negative cost. Only Envoy's
// RPC has those.
func isRefund(hits []bucket.Hit) bool {
	return slices.ContainsFunc(hits, func(h bucket.Hit) bool { return h.Cost < 0 })
}

// seenInTake keeps what a TakeResponse shows. It shows the moment of a take
// only if that can be given back, and never what remained before.
func seenInTake(hits []bucket.Hit, decisions []bucket.Decision) {
	if isRefund(hits) {
		seenInEnvoys(hits, decisions)
		return
	}
	allowed := groupAllowed(hits, decisions)
	for i := range decisions {
		decisions[i].RoomBefore, decisions[i].PauseBegan = 0, false
		if !bucket.Charged(&hits[i], &decisions[i], allowed) {
			decisions[i].At = 0
		}
	}
}

// groupAllowed is bucket.GroupAllowed for hits that may have equal keys.
func groupAllowed(hits []bucket.Hit, decisions []bucket.Decision) bool {
	merged, of := bucket.Merge(nil, nil, hits)
	got := make([]bucket.Decision, len(merged))
	for i, j := range of {
		got[j] = decisions[i]
	}
	return bucket.GroupAllowed(merged, got)
}

// seenInEnvoys keeps what a RateLimitResponse shows: 32 bits of what remains, whole
// seconds, no moment, and one retry time, the longest.
func seenInEnvoys(_ []bucket.Hit, decisions []bucket.Decision) {
	longest := time.Duration(0)
	for _, d := range decisions {
		if d.RetryAfter == bucket.Never || longest != bucket.Never && d.RetryAfter > longest {
			longest = d.RetryAfter
		}
	}
	for i := range decisions {
		d := &decisions[i]
		d.Remaining, d.ResetAfter, d.Wait, d.At, d.RoomBefore = min(d.Remaining, math.MaxUint32), wholeSeconds(d.ResetAfter), 0, 0, 0
		d.Paused, d.PauseBegan = 0, false
		if !d.Allowed() {
			d.RetryAfter = wholeSeconds(longest)
		}
	}
}

// wholeSeconds rounds up.
func wholeSeconds(d time.Duration) time.Duration {
	if d <= 0 {
		return d
	}
	return (d + time.Second - 1).Truncate(time.Second)
}

// asAskedInTake changes ops into those that the daemon's own API can ask: takes and
// give-backs of takes, whose costs are not reports. Each quota belongs to one
// descriptor, and equal keys have one rule.
func asAskedInTake(ops []buckettest.Op) []buckettest.Op {
	ops = asAskedOverAnAPI(ops)
	for i := range ops {
		roles := map[string]bucket.Role{}
		for j := range ops[i].Hits {
			h := &ops[i].Hits[j]
			if h.Cost < 0 {
				h.Cost = -max(h.Cost, -math.MaxInt64)
			}
			role, known := roles[string(h.Key)]
			if !known {
				role = h.Role
				roles[string(h.Key)] = role
			}
			h.Role, h.Limit = role, unreported(h.Limit)
			if role > bucket.Enforced {
				h.Role = bucket.Quota(j + 1)
			}
		}
	}
	return ops
}

// asAskedInEnvoys changes ops into those that Envoy's RPC can ask: takes and
// refunds, where all hits are enforced, and bring their own hits_addend.
func asAskedInEnvoys(ops []buckettest.Op) []buckettest.Op {
	ops = asAskedOverAnAPI(ops)
	for i := range ops {
		for j := range ops[i].Hits {
			ops[i].Hits[j].Role, ops[i].Hits[j].Limit = bucket.Enforced, ops[i].Hits[j].Limit.Reported()
			if ops[i].GivesBack >= 0 {
				ops[i].Hits[j].Cost = 0
			}
		}
		ops[i].GivesBack = -1
	}
	return ops
}

// unreported returns the limit for which Reported may have returned l.
func unreported(l *bucket.Limit) *bucket.Limit {
	plain, err := bucket.NewLimit(l.Spec)
	if err != nil {
		panic(err) // l has these numbers
	}
	return plain
}

// asAskedOverAnAPI turns checks into takes. The clock does not go back,
// because expiry depends on what was taken. A give-back returns what its take
// asked.
func asAskedOverAnAPI(ops []buckettest.Op) []buckettest.Op {
	var clock int64
	ops = slices.Clone(ops)
	for i := range ops {
		clock = max(clock, ops[i].Clock)
		ops[i].Clock, ops[i].Checks, ops[i].Hits = clock, false, slices.Clone(ops[i].Hits)
	}
	return ops
}
