package decide_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// rig is a decider on the limits of one file, in memory, whose clock stands still.
type rig struct {
	*decide.Decider
	t     testing.TB
	clock atomic.Int64
	table *assign.Table
	store *memstore.Store
	live  *rules.Live
}

// started is when a rig's clock begins.
var started = time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC)

func newRig(t testing.TB, limits string, change ...func(*decide.Options)) *rig {
	t.Helper()
	r := &rig{t: t, table: assign.NewTable()}
	r.clock.Store(started.UnixMicro())
	r.live = limitsfile.NewLive(filetest.Write(t, t.TempDir(), "limits.yaml", limits), nil)
	if err := r.live.Reload(); err != nil {
		t.Fatal(err)
	}
	r.store = memstore.New(memstore.Options{MaxKeys: 1e5, Clock: r.clock.Load})
	t.Cleanup(func() { r.store.Close() })
	o := decide.Options{
		Live: r.live, Store: r.store, Refuses: func() error { return nil }, Assigned: r.table, Now: r.clock.Load,
		Bounds:         decide.Bounds{Descriptors: 100, Entries: 32, Bytes: 1 << 20},
		UnknownDomains: new(atomic.Uint64),
		OwnLimits:      decide.NewResults(prometheus.NewCounterVec(prometheus.CounterOpts{Name: "own"}, []string{"result"})),
	}
	for _, f := range change {
		f(&o)
	}
	r.Decider = decide.New(o)
	return r
}

// entries reads "key=value,key=value".
func entries(text string) (all []bucket.Entry) {
	for _, part := range strings.Split(text, ",") {
		key, value, _ := strings.Cut(part, "=")
		all = append(all, bucket.Entry{Key: key, Value: value})
	}
	return all
}

// asking returns a descriptor with this cost.
func asking(text string, cost uint64) decide.Descriptor {
	return decide.Descriptor{Entries: entries(text), HitsAddend: cost, HasHitsAddend: true}
}

// bringing is asking with numbers of its own.
func bringing(text string, requests uint64, period time.Duration) decide.Descriptor {
	d := asking(text, 1)
	d.Own = decide.Override{Set: true, Requests: requests, Period: period, Names: &decide.OwnNames{Whole: "numbers"}}
	return d
}

func (r *rig) call(descriptors ...decide.Descriptor) *decide.Call {
	r.t.Helper()
	c := r.NewCall()
	c.Domain = "d"
	c.Descriptors = append(c.Descriptors, descriptors...)
	if err := c.Check(true); err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *rig) explain(descriptors ...decide.Descriptor) *decide.Explanation {
	r.t.Helper()
	x, err := r.Explain(context.Background(), r.call(descriptors...))
	if err != nil {
		r.t.Fatal(err)
	}
	return x
}

// take decides a request.
func (r *rig) take(descriptors ...decide.Descriptor) *decide.Call {
	r.t.Helper()
	c := r.call(descriptors...)
	if err := r.Decide(context.Background(), c); err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *rig) assign(entriesText string, terms assign.Terms) {
	r.table.Put(&assign.Assignment{Subject: assign.Subject{Domain: "d", Entries: entries(entriesText)}, Terms: terms, ETag: "1"})
}

// show returns an explanation as text.
func show(x *decide.Explanation) string {
	var s strings.Builder
	fmt.Fprintln(&s, x.Summary)
	fmt.Fprintf(&s, "allowed %v by %d/%d retry %s\n", x.Allowed, x.DeniedBy, x.DeniedByLimit, x.RetryAfter)
	for i := range x.Descriptors {
		d := &x.Descriptors[i]
		fmt.Fprintf(&s, "%s: %s", words.Entries(d.Entries), verdicts[d.Verdict])
		if d.Rule != nil {
			fmt.Fprintf(&s, ", rule %s", d.Rule.Path())
		}
		if d.Plan != nil {
			fmt.Fprintf(&s, ", plan %s", d.Plan.Plan)
		}
		fmt.Fprintln(&s)
		for _, a := range d.Assignments {
			fmt.Fprintf(&s, "  assignment %s: %s\n", words.Entries(a.Entries), a.Effect)
		}
		for _, l := range d.Limits {
			fmt.Fprintf(&s, "  limit %s (%s, of the %s) %s: %d left, retry %s, reset %s", l.Name, words.Numbers(l.Limit), sources[l.Source],
				l.Key, l.Remaining, l.RetryAfter, l.ResetAfter)
			if l.Shadow {
				s.WriteString(", shadow")
			}
			fmt.Fprintln(&s)
		}
		for _, h := range d.Hints {
			fmt.Fprintf(&s, "  %s\n", h)
		}
	}
	return s.String()
}

var (
	verdicts = map[decide.Verdict]string{
		decide.VerdictAllowed: "allowed", decide.VerdictDenied: "denied", decide.VerdictShadowed: "shadowed",
		decide.VerdictUnmatchedAllowed: "unmatched, allowed", decide.VerdictUnmatchedDenied: "unmatched, denied",
		decide.VerdictUnlimited: "unlimited", decide.VerdictBlocked: "blocked",
	}
	sources = map[decide.Source]string{decide.FromFile: "file", decide.FromAssignment: "assignment", decide.FromRequest: "request"}
)

// randomLimits is a limits file with some of everything.
func randomLimits(r *rand.Rand) string {
	var s strings.Builder
	s.WriteString("domain: d\n")
	if r.IntN(2) == 0 {
		s.WriteString("unmatched: deny\n")
	}
	if r.IntN(3) == 0 {
		s.WriteString("hash_tag: tenant\n")
	}
	s.WriteString("descriptors:\n")
	for _, key := range []string{"tenant", "user", "path"} {
		for _, value := range []string{"", "a", "a*"} {
			if r.IntN(3) == 0 {
				continue
			}
			fmt.Fprintf(&s, "- key: %s\n", key)
			if value != "" {
				fmt.Fprintf(&s, "  value: %q\n", value)
			}
			randomRule(r, &s, "  ", value == "a*")
			if r.IntN(2) == 0 {
				s.WriteString("  descriptors:\n  - key: user\n")
				randomRule(r, &s, "    ", false)
			}
		}
	}
	return s.String()
}

func randomRule(r *rand.Rand, s *strings.Builder, indent string, isPattern bool) {
	if flag := r.IntN(6); flag == 0 {
		s.WriteString(indent + "shadow_mode: true\n")
	} else if flag == 1 {
		s.WriteString(indent + "quota_mode: true\n")
	}
	kind := r.IntN(6)
	if isPattern && kind != 1 && r.IntN(2) == 0 {
		s.WriteString(indent + "share_threshold: true\n")
	}
	switch kind {
	case 0:
		s.WriteString(indent + "rate_limit: {unlimited: true}\n")
	case 1:
		fmt.Fprintf(s, "%splans: {free: %s, pro: [%s]}\n", indent, randomLimit(r, ""), randomLimit(r, "n1"))
		if r.IntN(2) == 0 {
			s.WriteString(indent + "plan: free\n")
		}
	case 2:
		fmt.Fprintf(s, "%srate_limits: [%s, %s]\n", indent, randomLimit(r, "n1"), randomLimit(r, "n2"))
	default:
		name := []string{"", "n1", "n2"}[r.IntN(3)]
		fmt.Fprintf(s, "%srate_limit: %s\n", indent, randomLimit(r, name))
	}
}

func randomLimit(r *rand.Rand, name string) string {
	text := fmt.Sprintf("{algorithm: %s, requests: %d, period: %s", buckettest.Rates()[r.IntN(6)], r.IntN(8), []string{"10s", "1m", "1d"}[r.IntN(3)])
	if name != "" {
		text += ", name: " + name
		if name == "n2" && r.IntN(3) == 0 {
			text += ", replaces: [{name: n1}]"
		}
	}
	if r.IntN(5) == 0 {
		text += ", postpaid: true"
	}
	return text + "}"
}

func randomTerms(r *rand.Rand) assign.Terms {
	switch r.IntN(5) {
	case 0:
		return assign.Terms{Blocked: true}
	case 1:
		return assign.Terms{Unlimited: true}
	case 2:
		return assign.Terms{Plan: []string{"free", "pro", "gone"}[r.IntN(3)]}
	}
	n := assign.Numbers{Limit: []string{"", "n1", "n2"}[r.IntN(3)], Requests: r.Int64N(8)}
	if r.IntN(3) == 0 {
		n.Period = time.Hour
	}
	if r.IntN(3) == 0 {
		n.Burst = 3
	}
	t := assign.Terms{Numbers: []assign.Numbers{n}}
	if r.IntN(3) == 0 {
		t.Plan = "pro"
	}
	t.Unlimited, t.Blocked = r.IntN(6) == 0, r.IntN(6) == 0
	return t
}

func randomDescriptor(r *rand.Rand) decide.Descriptor {
	text := []string{"tenant", "user", "path", "other"}[r.IntN(4)] + "=" + []string{"a", "ab", "b"}[r.IntN(3)]
	if r.IntN(3) == 0 {
		text += ",user=" + []string{"a", "b"}[r.IntN(2)]
	}
	d := asking(text, r.Uint64N(4))
	if r.IntN(8) == 0 {
		cost := d.HitsAddend
		d = bringing(text, uint64(r.IntN(6)), []time.Duration{10 * time.Second, time.Minute}[r.IntN(2)])
		d.HitsAddend = cost
	}
	return d
}
