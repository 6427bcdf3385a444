package buckettest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// law is a promise that holds at any time, tested on limits that do not refill.
type law struct {
	name string
	test func(*testing.T, Harness)
}

var laws = []law{
	{"a denial is free", denialIsFree},
	{"postpaid is charged whatever the group gets", postpaidInADeniedGroup},
	{"a report is charged whatever the group gets", reportInADeniedGroup},
	{"what is not reported keeps its free denials", denialBesideReports},
	{"a report and another hit of one key are a report", reportMerges},
	{"a peek over its limit denies the group", peekDenies},
	{"a refund applies if its group does", refundInAGroup},
	{"equal keys merge", equalKeysMerge},
	{"of equal keys the least capacity decides", leastCapacityDecides},
	{"a denied take gives nothing back", deniedGivesNothingBack},
	{"a check agrees with the take that follows", checkAgrees},
	{"a check of a group charges nothing", checkOfAGroup},
	{"each limit that denies starts its own pause", eachDenialPauses},
	{"a hit aside has no say", asideHasNoSay},
	{"one quota is enough", oneQuotaIsEnough},
	{"a give-back of a group with roles", rolesGiveBack},
	{"equal keys take the stricter role", equalKeysTakeTheStricterRole},
	{"costs have bounds", costsHaveBounds},
	{"limits on one subject are apart", limitsAreApart},
	{"hostile values are apart", hostileValues},
	{"keys are not kept", keysAreNotKept},
	{"large groups", largeGroups},
	{"no hits", noHits},
	{"a cancelled caller", cancelledCaller},
	{"ping", func(t *testing.T, h Harness) {
		if err := h.Open(t, nil).Ping(context.Background()); err != nil {
			t.Error(err)
		}
	}},
}

func runLaws(t *testing.T, h Harness) {
	for _, l := range laws {
		if !h.lacks(t, l.name) {
			t.Run(l.name, func(t *testing.T) { l.test(t, h) })
		}
	}
}

// eachAlgorithm returns a hit of cost on a still limit of each algorithm, all
// on subjects of their own.
func eachAlgorithm(t *testing.T, requests, cost int64) []bucket.Hit {
	var hits []bucket.Hit
	for _, a := range Rates() {
		hits = append(hits, Hit(stillLimit(t, a, requests), a.String(), cost))
	}
	return hits
}

func denialIsFree(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	hits := eachAlgorithm(t, 10, 3)
	last := Hit(stillLimit(t, bucket.TokenBucket, 2), "last", 3)
	Take(t, s, hits...) // so that there is something to spoil
	for denier := range len(hits) + 1 {
		group := append(append([]bucket.Hit{}, hits[:denier]...), last)
		group = append(group, hits[denier:]...)
		d := Take(t, s, group...)
		if bucket.Allowed(d) || d[denier].Allowed() {
			t.Fatalf("3 of 2 were allowed: %v", d)
		}
		for i := range group {
			if i != denier && (!d[i].Allowed() || d[i].Remaining != 7) {
				t.Errorf("%s: %+v in a group that another denied, want allowed with 7 remaining", group[i].Key, d[i])
			}
		}
	}
	for _, h := range hits {
		wantRemaining(t, s, h, 7)
	}
	wantRemaining(t, s, last, 2)
}

func postpaidInADeniedGroup(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	for _, a := range Rates() {
		spec := bucket.Spec{Name: "post", Algorithm: a, Requests: 10, Period: still, Postpaid: bucket.PostpaidAlways}
		post := Hit(NewLimit(t, spec), a.String(), 4)
		normal := Hit(stillLimit(t, a, 3), a.String(), 1)
		full := Hit(stillLimit(t, a, 3), a.String()+" full", 3)
		Take(t, s, full)

		d := Take(t, s, post, normal, full)
		if bucket.Allowed(d) || !d[0].Allowed() || d[0].Remaining != 6 || d[1].Remaining != 3 {
			t.Errorf("%s: got %+v, want a denied group in which 4 of 10 were charged, and the 3 not", a, d)
		}
		wantRemaining(t, s, post, 6)
		wantRemaining(t, s, normal, 3)

		post.Cost = 100
		if d := Take(t, s, post); !bucket.Allowed(d) || d[0].Remaining != 0 {
			t.Errorf("%s: got %+v, want to be charged beyond the limit", a, d)
		}
		if d := Take(t, s, post); bucket.Allowed(d) || d[0].RetryAfter == bucket.Never {
			t.Errorf("%s: got %+v, want to be denied for a while", a, d)
		}
	}
}

func peekDenies(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	full := Hit(stillLimit(t, bucket.FixedWindow, 2), "full", 2)
	other := Hit(stillLimit(t, bucket.TokenBucket, 2), "other", 1)
	Take(t, s, full)
	full.Cost = 0
	if d := Take(t, s, full, other); bucket.Allowed(d) || d[0].Allowed() || !d[1].Allowed() {
		t.Errorf("got %+v, want the first denied", d)
	}
	wantRemaining(t, s, other, 2)
}

func refundInAGroup(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	refunds := eachAlgorithm(t, 10, -2)
	for _, h := range refunds {
		h.Cost = 5
		Take(t, s, h)
	}
	other := Hit(stillLimit(t, bucket.TokenBucket, 2), "other", 3)
	if d := Take(t, s, append(refunds, other)...); bucket.Allowed(d) || !bucket.Allowed(d[:len(refunds)]) {
		t.Errorf("got %+v, want only the last denied", d)
	}
	for _, h := range refunds {
		wantRemaining(t, s, h, 5)
	}
	other.Cost = 2
	if d := Take(t, s, append(refunds, other)...); !bucket.Allowed(d) || d[0].Remaining != 7 {
		t.Errorf("got %+v, want 7 remaining of the first", d)
	}
	for _, h := range refunds {
		wantRemaining(t, s, h, 7)
		h.Cost = -100
		Take(t, s, h)
		wantRemaining(t, s, h, 10)
	}
}

func equalKeysMerge(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	for _, h := range eachAlgorithm(t, 10, 2) {
		other := h
		other.Cost = 3
		between := Hit(stillLimit(t, bucket.TokenBucket, 10), string(h.Key)+" between", 1)
		for i, want := range []struct {
			allowed   bool
			remaining int64
		}{{true, 5}, {true, 0}, {false, 0}} {
			d := Take(t, s, h, between, other)
			if d[0].Allowed() != want.allowed || d[0].Remaining != want.remaining || d[0] != d[2] {
				t.Errorf("%s: take %d: got %+v and %+v, want both allowed %v with %d remaining", h.Key, i, d[0], d[2], want.allowed, want.remaining)
			}
		}
		wantRemaining(t, s, between, 8)
		h.Cost, other.Cost = 1, -1 // a peek
		if d := Take(t, s, h, other); bucket.Allowed(d) {
			t.Errorf("%s: got %+v for 1 and -1, want a denied peek", h.Key, d)
		}
	}
}

func leastCapacityDecides(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	few, many := eachAlgorithm(t, 4, 1), eachAlgorithm(t, 10, 3)
	for i := range few {
		for _, group := range [][]bucket.Hit{{few[i], many[i]}, {many[i], few[i]}} {
			if d := Take(t, s, group...); !bucket.Allowed(d) || d[0].Remaining != 0 || d[0] != d[1] {
				t.Errorf("%s: got %+v, want 4 of 4 taken", few[i].Key, d)
			}
			if d := Take(t, s, group...); bucket.Allowed(d) {
				t.Errorf("%s: got %+v, want both denied", few[i].Key, d)
			}
			wantRemaining(t, s, many[i], 6)
			full := many[i]
			full.Cost = -10
			Take(t, s, full)
		}
	}
}

func deniedGivesNothingBack(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	hits := eachAlgorithm(t, 10, 3)
	before := Take(t, s, hits...)
	last := Hit(stillLimit(t, bucket.TokenBucket, 2), "last", 3)
	group := append(hits[:len(hits):len(hits)], last)
	denied := Take(t, s, group...)
	GiveBack(t, s, group, denied)
	for _, h := range hits {
		wantRemaining(t, s, h, 7)
	}
	GiveBack(t, s, hits, before)
	for _, h := range hits {
		wantRemaining(t, s, h, 10)
	}
	for _, cost := range []int64{0, -3} { // nor does what took nothing
		for i := range hits {
			hits[i].Cost = 3
		}
		Take(t, s, hits...)
		for i := range hits {
			hits[i].Cost = cost
		}
		after := Take(t, s, hits...)
		GiveBack(t, s, hits, after)
		for i, h := range hits {
			wantRemaining(t, s, h, after[i].Remaining)
			h.Cost = -10
			Take(t, s, h)
		}
	}
}

func costsHaveBounds(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	const maxCost = int64(^uint64(0) >> 1)
	for _, h := range eachAlgorithm(t, 10, maxCost) {
		if d := Take(t, s, h, h, h); bucket.Allowed(d) || d[0].RetryAfter != bucket.Never {
			t.Errorf("%s: got %+v for 3 x %d, want never", h.Key, d, maxCost)
		}
		h.Cost = 10
		Take(t, s, h)
		h.Cost = -maxCost - 1
		if d := Take(t, s, h, h); !bucket.Allowed(d) || d[0].Remaining != 10 {
			t.Errorf("%s: got %+v for a refund of 2 x %d, want all of it back", h.Key, d, maxCost)
		}
	}
}

func limitsAreApart(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	var hits []bucket.Hit
	for _, a := range Rates() {
		for _, name := range []string{"", "a", "b", a.String(), "a#b", ":a"} {
			l := NewLimit(t, bucket.Spec{Name: name, Algorithm: a, Requests: 1, Period: still})
			hits = append(hits, Hit(l, "one", 1))
		}
	}
	exhaustEach(t, s, hits)
}

// HostileSubjects returns descriptors that a careless encoding would give the same
// key, or that would break out of a key.
func HostileSubjects() [][]bucket.Entry {
	subjects := [][]bucket.Entry{
		{},
		{{Key: "", Value: ""}},
		{{Key: "", Value: ""}, {Key: "", Value: ""}},
		{{Key: "a", Value: "b"}, {Key: "c", Value: "d"}},
		{{Key: "a", Value: "b|c=d"}},
		{{Key: "a=b|c", Value: "d"}},
		{{Key: "a", Value: "b"}, {Key: "c=d", Value: ""}},
		{{Key: "a=b", Value: ""}},
		{{Key: "a", Value: "=b"}},
		{{Key: "a%3Db", Value: ""}},
		{{Key: "a", Value: "b%7Cc=d"}},
		{{Key: "a_b", Value: "c"}},
		{{Key: "a", Value: "b_c"}},
		{{Key: "a", Value: "b_c_d"}},
	}
	long := strings.Repeat("x", 5000)
	for _, v := range []string{
		"{", "}", "{}", "{tag}", "}{", "#", "#token_bucket", "#fixed_window:l", "~", "%", "%7B", "%7b", "|", "||", "=", ":",
		"\x00", "\x00\x00", "\r\n", "\n", "\x1b[31m", "\x7f", "\xff\xfe", "é", "e\u0301", " ", "  ", "*", "'", "\"", "$1", "KEYS[1]",
		long, long + "x", "y" + long, long[:2500] + "y" + long[2500:], strings.Repeat("{", 5000), strings.Repeat("\x00", 5000),
	} {
		subjects = append(subjects, []bucket.Entry{{Key: "k", Value: v}}, []bucket.Entry{{Key: v, Value: "k"}})
	}
	return subjects
}

func hostileValues(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	for _, a := range []bucket.Algorithm{bucket.TokenBucket, bucket.SlidingWindow} {
		l := stillLimit(t, a, 1)
		var hits []bucket.Hit
		for _, domain := range []string{"", "d", "d|a=b", "{d}"} {
			for _, entries := range HostileSubjects() {
				hits = append(hits, hitOn(l, domain, entries, 1))
			}
		}
		exhaustEach(t, s, hits)
	}
}

// exhaustEach takes the only request of each hit, and fails t if two keys share a
// state.
func exhaustEach(t *testing.T, s bucket.Store, hits []bucket.Hit) {
	t.Helper()
	for i, h := range hits {
		if d := Take(t, s, h); !bucket.Allowed(d) {
			t.Errorf("hit %d, %q, shares a key with another", i, h.Key)
		}
	}
	for i, h := range hits {
		if d := Take(t, s, h); bucket.Allowed(d) {
			t.Errorf("hit %d, %q, was allowed twice", i, h.Key)
		}
	}
}

func keysAreNotKept(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	first := Hit(stillLimit(t, bucket.TokenBucket, 1), "first", 1)
	second := Hit(first.Limit, "other", 1)
	shared := first
	shared.Key, shared.Place = append([]byte{}, first.Key...), append([]byte{}, first.Place...)
	Take(t, s, shared)
	copy(shared.Key, second.Key)
	copy(shared.Place, second.Place)
	if d := Take(t, s, second); !bucket.Allowed(d) {
		t.Error("an unused key was denied: the store kept a caller's slice")
	}
	if d := Take(t, s, first); bucket.Allowed(d) {
		t.Error("a key was forgotten: the store kept a caller's slice")
	}
}

func largeGroups(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	var hits []bucket.Hit
	for i := range 200 {
		a := Rates()[i%len(Rates())]
		hits = append(hits, Hit(stillLimit(t, a, 2), fmt.Sprint(i), 1))
	}
	for i, want := range []bool{true, true, false} {
		if d := Take(t, s, hits...); bucket.Allowed(d) != want {
			t.Errorf("take %d of 200 hits: allowed %v", i, !want)
		}
	}
}

func noHits(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	if err := s.Take(context.Background(), nil, nil); err != nil {
		t.Errorf("Take: %v", err)
	}
	if err := s.Check(context.Background(), nil, nil); err != nil {
		t.Errorf("Check: %v", err)
	}
	if err := s.GiveBack(context.Background(), nil, nil); err != nil {
		t.Errorf("GiveBack: %v", err)
	}
}

// cancelledCaller: a caller that has gone soon gets an error or a decision, and breaks
// nothing for others.
func cancelledCaller(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	x := Hit(stillLimit(t, bucket.TokenBucket, 3), "x", 1)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()

	done := make(chan error, 1)
	decisions := make([]bucket.Decision, 1)
	go func() { done <- s.Take(ctx, []bucket.Hit{x}, decisions) }()
	guard, stop := context.WithTimeout(context.Background(), answerTimeout)
	defer stop()
	select {
	case err := <-done:
		if err == nil && (!decisions[0].Allowed() || decisions[0].Remaining != 2) {
			t.Errorf("got %+v without an error, want a decision", decisions[0])
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the error does not say that the caller cancelled: %v", err)
		}
	case <-guard.Done():
		t.Fatal("Take hangs")
	}
	if left := remaining(t, s, x); left < 2 {
		t.Errorf("%d remain after one take", left)
	}
	if d := Take(t, s, x); !bucket.Allowed(d) {
		t.Error("another caller was denied")
	}
}
