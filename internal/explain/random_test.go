package explain_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/decide/decidetest"
	"github.com/ratelimitd/ratelimitd/internal/explain"
)

// What Explain says is what Decide then does, whatever the rules, the assignments and
// the request; and a second Explain says the same.
func TestExplainSaysWhatDecideDoes(t *testing.T) {
	denied, seen := holdAgainstDecide(t, soaktest.Long(60, 600), 60, func(*decide.Options) {})
	for v, name := range verdicts {
		if seen[v] < 5 {
			t.Errorf("%d descriptors are %s: the test sees too little", seen[v], name)
		}
	}
	if denied < 100 {
		t.Errorf("%d requests were denied", denied)
	}
}

// randomAssignment has a base, temporary layers, or both.
func randomAssignment(rnd *rand.Rand, entries []bucket.Entry, now int64) *assign.Assignment {
	a := &assign.Assignment{Subject: assign.Subject{Domain: "d", Entries: entries}}
	if rnd.IntN(3) > 0 {
		a.Base.Terms = randomTerms(rnd)
	}
	for range rnd.IntN(3) {
		a.Layers = append(a.Layers, assign.Layer{Terms: randomTerms(rnd), Until: now + 1 + rnd.Int64N(20e6)})
	}
	return a
}

// holdAgainstDecide explains random requests and then decides them, and returns how
// many were denied and which verdicts there were.
func holdAgainstDecide(t *testing.T, worlds, requests int, change func(*decide.Options)) (int, map[explain.Verdict]int) {
	t.Helper()
	denied, seen := 0, map[explain.Verdict]int{}
	for seed := range uint64(worlds) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		limits := randomLimits(rnd)
		if !strings.Contains(limits, "- key") {
			continue
		}
		modes := decide.Modes{Shadow: rnd.IntN(10) == 0, Quota: rnd.IntN(5) == 0, DenyUnmatched: rnd.IntN(3) == 0}
		r := decidetest.NewRig(t, limits, func(o *decide.Options) { o.Modes = modes }, change)
		for range requests {
			if rnd.IntN(4) == 0 {
				if a := randomAssignment(rnd, randomDescriptor(rnd).Entries, r.Clock.Load()); !a.IsEmpty() {
					r.Assigned.Put(a)
				}
			}
			r.Clock.Add(rnd.Int64N(3e6))
			var asked []decide.Descriptor
			for range 1 + rnd.IntN(3) {
				asked = append(asked, randomDescriptor(rnd))
			}
			before := r.Memory.Stats()
			x, again := request(r, asked...), request(r, asked...)
			if show(x) != show(again) {
				t.Fatalf("seed %d: a second explanation differs:\n%s\n%s", seed, show(x), show(again))
			}
			// The store's sweep may forget keys meanwhile, as they expire on the rig's clock.
			if after := r.Memory.Stats(); after.Keys > before.Keys || after.Bytes > before.Bytes || after.Evicted != before.Evicted || after.Degraded != before.Degraded {
				t.Fatalf("seed %d: explaining makes %+v of %+v:\n%s", seed, before, after, show(x))
			}
			c := r.Take(asked...)
			if difference := compare(x, c); difference != "" {
				t.Fatalf("seed %d: %s\n%s\n%s", seed, difference, show(x), limits)
			}
			if c.Denied {
				denied++
			}
			for i := range x.Descriptors {
				seen[x.Descriptors[i].Verdict]++
			}
		}
	}
	return denied, seen
}

// compare says how a decided call differs from its explanation, or returns "".
func compare(x *explain.Explanation, c *decide.Call) string {
	// Hits with equal keys are decided as one. A hit that is denied and charged anyway
	// makes the wait longer.
	merged, of := bucket.Merge(nil, nil, c.Hits)
	chargesDenied := false
	for i := range merged {
		chargesDenied = chargesDenied || merged[i].Limit.ChargedAnyway(merged[i].Cost)
	}
	if x.Allowed == c.Denied || c.Denied && x.RetryAfter != c.RetryAfter() && !chargesDenied || !c.Denied && x.RetryAfter != 0 {
		return fmt.Sprintf("denied %v, retry %s", c.Denied, c.RetryAfter())
	}
	n := 0
	for i := range c.Outcomes {
		o, e := &c.Outcomes[i], &x.Descriptors[i]
		limits, decisions := o.Limits, o.Decisions
		if o.Refusal != decide.NotRefused {
			limits, decisions = limits[1:], decisions[1:]
			n++
		}
		if len(limits) != len(e.Limits) {
			return fmt.Sprintf("descriptor %d has %d limits", i, len(limits))
		}
		if over := e.Verdict != explain.Allowed && e.Verdict != explain.Unlimited && e.Verdict != explain.UnmatchedAllowed; over != o.IsOver() {
			return fmt.Sprintf("descriptor %d is over: %v", i, o.IsOver())
		}
		for j := range limits {
			l, d := &e.Limits[j], decisions[j]
			h := &merged[of[n]]
			n++
			left := l.Remaining
			if bucket.Charged(h, &d, !c.Denied) {
				left = max(0, left-h.Cost)
			}
			if l.Limit != limits[j] || !strings.HasSuffix(l.Key, string(h.Key)) || d.Allowed() != l.Allowed() || d.RetryAfter != l.RetryAfter && !h.Limit.ChargedAnyway(h.Cost) || d.Remaining != left {
				return fmt.Sprintf("limit %d of descriptor %d gets %+v, and its explanation is %+v", j, i, d, l.Decision)
			}
		}
	}
	return ""
}

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
			shares := value == "a*" && r.IntN(2) == 0 // not with plans
			if shares {
				s.WriteString("  share_threshold: true\n")
			}
			randomRule(r, &s, "  ", !shares)
			if r.IntN(2) == 0 {
				s.WriteString("  descriptors:\n  - key: user\n")
				randomRule(r, &s, "    ", !shares)
			}
		}
	}
	return s.String()
}

func randomRule(r *rand.Rand, s *strings.Builder, indent string, mayHavePlans bool) {
	if flag := r.IntN(6); flag == 0 {
		s.WriteString(indent + "shadow_mode: true\n")
	} else if flag == 1 {
		s.WriteString(indent + "quota_mode: true\n")
	}
	switch kind := r.IntN(6); {
	case kind == 0:
		s.WriteString(indent + "rate_limit: {unlimited: true}\n")
	case kind == 1 && mayHavePlans:
		fmt.Fprintf(s, "%splans: {free: %s, pro: [%s]}\n", indent, randomLimit(r, ""), randomLimit(r, "n1"))
		if r.IntN(2) == 0 {
			s.WriteString(indent + "plan: free\n")
		}
	case kind == 2:
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
	d := decidetest.Asking(text, r.Uint64N(4))
	if r.IntN(8) == 0 {
		cost := d.HitsAddend
		d = decidetest.Bringing(text, uint64(r.IntN(6)), []time.Duration{10 * time.Second, time.Minute}[r.IntN(2)])
		d.HitsAddend = cost
	}
	return d
}
