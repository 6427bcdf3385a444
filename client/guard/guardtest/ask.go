package guardtest

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/guard"
)

func (s *suite[R, S, H]) allowsUpToTheLimit(t *testing.T) {
	server := s.serve(t, guard.Options[R, S, H]{Descriptors: by(s.Header("user", "X-User"))})
	for _, remaining := range []string{"1", "0"} {
		got := server.send(t, "X-User: "+t.Name())
		is(t, got, s.Allowed)
		has(t, got, "X-Ratelimit-Limit", "2")
		has(t, got, "X-Ratelimit-Remaining", remaining)
		has(t, got, "X-Ratelimit-Reset", "3600")
		has(t, got, "Retry-After", "")
	}
	if n := server.served.Load(); n != 2 {
		t.Errorf("%d of 2 reached the handler", n)
	}
}

func (s *suite[R, S, H]) deniesOverTheLimit(t *testing.T) {
	server := s.serve(t, guard.Options[R, S, H]{Descriptors: by(s.Header("user", "X-User"))})
	server.statuses(t, 2, Request{Headers: []string{"X-User: " + t.Name()}})
	got := server.send(t, "X-User: "+t.Name())
	is(t, got, s.Denied)
	has(t, got, "X-Ratelimit-Limit", "2")
	has(t, got, "X-Ratelimit-Remaining", "0")
	if after := got.Header.Values("Retry-After"); len(after) != 1 || after[0] != "3600" && after[0] != "3599" {
		t.Errorf("Retry-After: found %q", after)
	}
	if n := server.served.Load(); n != 2 {
		t.Errorf("%d of 3 reached the handler, want 2", n)
	}
}

// isOneCounter reports an error unless the first two of the same requests and the other
// request are allowed, and the third is denied.
func (s *suite[R, S, H]) isOneCounter(t *testing.T, server *server[S], same [3]Request, other Request) {
	t.Helper()
	for i, r := range same {
		want := s.Allowed.Status
		if i == 2 {
			want = s.Denied.Status
		}
		if got := server.ask(t, r).Status; got != want {
			t.Errorf("request %d: found %v, want %v", i, got, want)
		}
	}
	if got := server.ask(t, other).Status; got != s.Allowed.Status {
		t.Errorf("another counter: found %v", got)
	}
}

func (s *suite[R, S, H]) asksByAHeader(t *testing.T) {
	server := s.serve(t, guard.Options[R, S, H]{Descriptors: own(t, s.Header("part", "X-User"))})
	alice := Request{Headers: []string{"X-User: alice", "X-User: bob"}}
	s.isOneCounter(t, server, [3]Request{alice, alice, alice}, Request{Headers: []string{"X-User: bob"}})
}

func (s *suite[R, S, H]) asksByAFunction(t *testing.T) {
	server := s.serve(t, guard.Options[R, S, H]{Descriptors: own(t, s.Func("part", func(r R) (string, bool) {
		return s.HeaderOf(r, "X-First") + s.HeaderOf(r, "X-Last"), true
	}))})
	same := Request{Headers: []string{"X-First: a", "X-Last: b"}}
	s.isOneCounter(t, server, [3]Request{same, same, same}, Request{Headers: []string{"X-First: b", "X-Last: a"}})
}

func (s *suite[R, S, H]) asksByTheMethod(t *testing.T) {
	server := s.serve(t, guard.Options[R, S, H]{Descriptors: own(t, s.Method("part"))})
	s.isOneCounter(t, server, [3]Request{{Path: "/items/1"}, {Path: "/other"}, {}}, Request{IsOther: true})
}

// loopback is where the suite's requests come from.
var loopback = netip.MustParsePrefix("127.0.0.0/8")

func (s *suite[R, S, H]) asksByTheClientAddress(t *testing.T) {
	for _, row := range []struct {
		name    string
		part    guard.Part[R]
		headers func(i int) []string
		// other is another client; nil if there can be none.
		other []string
	}{
		{
			"a client without a proxy cannot choose its address", s.ClientAddress("part"),
			func(i int) []string { return []string{fmt.Sprintf("X-Forwarded-For: 203.0.113.%d", i)} }, nil,
		},
		{
			"a trusted proxy names the address", s.ClientAddress("part", loopback),
			func(i int) []string { return []string{fmt.Sprintf("X-Forwarded-For: 203.0.113.%d, 198.51.100.7", i)} },
			[]string{"X-Forwarded-For: 203.0.113.1, 198.51.100.8"},
		},
		{
			"a trusted proxy names the address in a second header", s.ClientAddress("part", loopback),
			func(i int) []string {
				return []string{fmt.Sprintf("X-Forwarded-For: 203.0.113.%d", i), "X-Forwarded-For: 198.51.100.7"}
			},
			[]string{"X-Forwarded-For: 203.0.113.1", "X-Forwarded-For: 198.51.100.8"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			server := s.serve(t, guard.Options[R, S, H]{Descriptors: own(t, row.part)})
			for i := range 3 {
				if got := server.send(t, row.headers(i)...).Status; (got == s.Allowed.Status) != (i < 2) {
					t.Errorf("request %d: found %v", i, got)
				}
			}
			if row.other != nil {
				is(t, server.send(t, row.other...), s.Allowed)
			}
		})
	}
}

func (s *suite[R, S, H]) asksByTheClientNetwork(t *testing.T) {
	if s.ClientNetwork == nil {
		t.Skip("the middleware has no ClientNetwork")
	}
	server := s.serve(t, guard.Options[R, S, H]{Descriptors: own(t, s.ClientNetwork("part", 16, 64, loopback))})
	from := func(address string) Request { return Request{Headers: []string{"X-Forwarded-For: " + address}} }
	s.isOneCounter(t, server, [3]Request{from("2001:db8::0"), from("2001:db8::1"), from("2001:db8::2")}, from("2001:db8:0:1::"))
	s.isOneCounter(t, server, [3]Request{from("198.51.1.1"), from("198.51.2.2"), from("198.51.3.3")}, from("198.52.1.1"))
	direct := s.serve(t, guard.Options[R, S, H]{Descriptors: own(t, s.ClientNetwork("part", 16, 64))})
	if got := direct.statuses(t, 3, Request{}); !slices.Equal(got, []S{s.Allowed.Status, s.Allowed.Status, s.Denied.Status}) {
		t.Errorf("without a proxy: %v", got)
	}
}

func (s *suite[R, S, H]) takesTheRequestsCost(t *testing.T) {
	server := s.serve(t, guard.Options[R, S, H]{
		Descriptors: by(guard.Constant[R]("user", t.Name())),
		Cost: func(r R) uint64 {
			cost, _ := strconv.ParseUint(s.HeaderOf(r, "X-Cost"), 10, 64)
			return cost
		},
	})
	free := server.send(t, "X-Cost: 0")
	is(t, free, s.Allowed)
	has(t, free, "X-Ratelimit-Remaining", "2")
	two := server.send(t, "X-Cost: 2")
	is(t, two, s.Allowed)
	has(t, two, "X-Ratelimit-Remaining", "0")
	// A cost of 0 asks whether there is room for 1.
	is(t, server.send(t, "X-Cost: 0"), s.Denied)
}

func (s *suite[R, S, H]) takesTheRequestsNumbers(t *testing.T) {
	server := s.serve(t, guard.Options[R, S, H]{
		Descriptors: []guard.Descriptor[R]{{
			Parts: []guard.Part[R]{guard.Constant[R]("user", t.Name())},
			LimitFor: func(r R) *client.Numbers {
				if s.HeaderOf(r, "X-Plan") == "gold" {
					return &client.Numbers{Requests: 5, Period: time.Hour}
				}
				return nil
			},
		}},
	})
	for _, remaining := range []string{"1", "0"} {
		got := server.send(t)
		is(t, got, s.Allowed)
		has(t, got, "X-Ratelimit-Limit", "2")
		has(t, got, "X-Ratelimit-Remaining", remaining)
	}
	is(t, server.send(t), s.Denied)
	gold := server.send(t, "X-Plan: gold")
	is(t, gold, s.Allowed)
	has(t, gold, "X-Ratelimit-Limit", "5")
	has(t, gold, "X-Ratelimit-Remaining", "2")
}

func (s *suite[R, S, H]) skipsRequests(t *testing.T) {
	server := s.serve(t, guard.Options[R, S, H]{
		Descriptors: by(guard.Constant[R]("user", t.Name())),
		Skip:        func(r R) bool { return s.HeaderOf(r, "X-Skip") != "" },
	})
	server.statuses(t, 3, Request{})
	got := server.send(t, "X-Skip: yes")
	is(t, got, s.Allowed)
	has(t, got, "X-Ratelimit-Limit", "")
}

func (s *suite[R, S, H]) requestsThatLackAValue(t *testing.T) {
	yes, no := s.Allowed.Status, s.Denied.Status
	for _, row := range []struct {
		name      string
		onMissing guard.OnMissing
		want      []S
	}{
		{"share a counter by Empty", guard.Empty, []S{yes, yes, no}},
		{"are not asked about by Omit", guard.Omit, []S{yes, yes, yes}},
		{"are denied by Deny", guard.Deny, []S{no, no, no}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			server := s.serve(t, guard.Options[R, S, H]{Descriptors: own(t, s.Header("part", "X-User")), OnMissing: row.onMissing})
			if got := server.statuses(t, 3, Request{}); !slices.Equal(got, row.want) {
				t.Errorf("found %v, want %v", got, row.want)
			}
			allowed := 0
			for _, status := range row.want {
				if status == yes {
					allowed++
				}
			}
			if n := server.served.Load(); int(n) != allowed {
				t.Errorf("%d reached the handler, want %d", n, allowed)
			}
		})
	}
}

func (s *suite[R, S, H]) anEmptyValueIsNotMissing(t *testing.T) {
	server := s.serve(t, guard.Options[R, S, H]{Descriptors: own(t, s.Header("part", "X-User")), OnMissing: guard.Deny})
	is(t, server.send(t, "X-User: "), s.Allowed)
}

func (s *suite[R, S, H]) distinguishesValuesThatAreNotUTF8(t *testing.T) {
	values := map[string]string{"one": "a\xff", "other": "a\xfe"}
	server := s.serve(t, guard.Options[R, S, H]{Descriptors: own(t, s.Func("part", func(r R) (string, bool) {
		value, ok := values[s.HeaderOf(r, "X-User")]
		return value, ok
	}))})
	one := Request{Headers: []string{"X-User: one"}}
	s.isOneCounter(t, server, [3]Request{one, one, one}, Request{Headers: []string{"X-User: other"}})
}
