package ask

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/types/known/timestamppb"

	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

func TestExplainTree(t *testing.T) {
	for _, tc := range []struct{ name, message, want string }{
		{"denied", `
summary: "It would be denied: because." denied_by_descriptor: 1 denied_by_limit: 0
descriptors {
  entries {key: "tenant" value: "acme"} entries {key: "user" value: "a b"}
  levels {
    entry {key: "tenant" value: "acme"}
    candidates {entry: "tenant=acme" place {file: "limits.yaml" line: 3} matched: true}
    candidates {entry: "tenant" place {file: "limits.yaml" line: 9} why_not: "an exact value goes before"}
    not_shown: 98
  }
  levels {
    entry {key: "user" value: "a b"}
    candidates {entry: "user" place {file: "limits.yaml" line: 5} matched: true}
  }
  rule {path: "tenant=acme / user" place {file: "limits.yaml" line: 5} quota_mode: true}
  plan: "pro"
  assignments {
    assignment {entries {key: "tenant" value: "acme"} plan: "pro" made_by: "ops" reason: "paid \"twice\"" until {seconds: 1767225600}}
    effect: "plan pro in place of free"
  }
  limits {
    limit {name: "minute" text: "10 at once, then one every 6s" capacity: 20} source: SOURCE_ASSIGNMENT
    key: "rl{4}:d|tenant=acme" hash_tag: "4" node: "redis-1:6379" allowed: true remaining: 7 reset_after {seconds: 65}
    on_store_failure: "it would allow"
  }
  limits {
    limit {text: "1 at once, then one every 30d" capacity: 1} source: SOURCE_FILE key: "k" shadow: true
    retry_after {seconds: 961200} reset_after {seconds: 961200}
  }
  limits {
    limit {name: "next" text: "5 at once, then one every 12s; shadow" capacity: 5} source: SOURCE_FILE key: "k1" shadow: true allowed: true remaining: 5
  }
  verdict: VERDICT_ALLOWED
  hints: "the rule has quota_mode"
}
descriptors {
  entries {key: "user" value: "x"}
  rule {path: "user" place {file: "xds"}}
  limits {
    limit {text: "denies always"} source: SOURCE_REQUEST key: "k2" reset_after {}
  }
  verdict: VERDICT_DENIED
}
`, `
It would be denied: because.
├─ 'tenant=acme,user=a b': allowed
│  ├─ search
│  │  ├─ tenant=acme
│  │  │  ├─ tenant=acme (limits.yaml:3): matches
│  │  │  ├─ tenant (limits.yaml:9): an exact value goes before
│  │  │  └─ and 98 more at this level
│  │  └─ 'user=a b'
│  │     └─ user (limits.yaml:5): matches
│  ├─ rule tenant=acme / user (limits.yaml:5), plan pro, quota_mode
│  ├─ assignment to tenant=acme: plan pro in place of free (by ops, "paid \"twice\"", until 2026-01-01T00:00:00Z)
│  ├─ limit minute: 10 at once, then one every 6s, numbers of an assignment
│  │  ├─ allows: 7 of 20 left, full again in 1m 5s
│  │  ├─ key rl{4}:d|tenant=acme, hash tag 4, on redis-1:6379
│  │  └─ if the store fails: it would allow
│  ├─ limit: 1 at once, then one every 30d
│  │  ├─ would deny, but is not in force for this subject: 0 of 1 left, would allow this in 11d 3h, full again in 11d 3h
│  │  └─ key k
│  ├─ limit next: 5 at once, then one every 12s; shadow
│  │  ├─ would allow, and is not in force for this subject: 5 of 5 left
│  │  └─ key k1
│  └─ note: the rule has quota_mode
└─ user=x: denied (this denies the request)
   ├─ rule user (xds)
   └─ limit: denies always, numbers of the request
      ├─ denies the request: 0 of 0 left, can never allow this
      └─ key k2
`},
		{"blocked", `
summary: "It would be denied: user=x is blocked." denied_by_descriptor: 0 degraded: true
descriptors {
  entries {key: "user" value: "x"}
  assignments {
    assignment {entries {key: "user" value: "x"} blocked: true made_by: "ops" until {seconds: 1767225600}}
    effect: "denies all until 2026-01-01T00:00:00Z"
  }
  verdict: VERDICT_BLOCKED
}
`, `
It would be denied: user=x is blocked. The store does not answer: this is what decides in its place.
└─ user=x: blocked (this denies the request)
   ├─ no rule
   └─ assignment to user=x: denies all until 2026-01-01T00:00:00Z (by ops)
`},
		{"what a terminal would obey", `
summary: "\033[2J\u009b"
descriptors {entries {key: "a\n" value: "\033]0;x\007"} verdict: VERDICT_UNMATCHED_ALLOWED hints: "x\r\u202e"}
descriptors {verdict: VERDICT_UNMATCHED_DENIED}
`, `
\u{1b}[2J\u{9b}
├─ 'a\u{a}=\u{1b}]0;x\u{7}': allowed, since no rule is for it
│  ├─ no rule
│  └─ note: x\u{d}\u{202e}
└─ no entries: denied, since no rule is for it
   └─ no rule
`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := new(adminv1.ExplainResponse)
			if err := prototext.Unmarshal([]byte(tc.message), m); err != nil {
				t.Fatal(err)
			}
			var s strings.Builder
			if err := writeExplainTree(&s, m, "", 0); err != nil {
				t.Fatal(err)
			}
			if want := strings.TrimPrefix(tc.want, "\n"); s.String() != want {
				t.Errorf("got\n%s\nwant\n%s", s.String(), want)
			}
		})
	}
}

func TestInspectTree(t *testing.T) {
	m := new(adminv1.InspectResponse)
	if err := prototext.Unmarshal([]byte(`
descriptor {
  entries {key: "user" value: "x"}
  rule {path: "user" place {file: "limits.yaml" line: 3}}
  limits {limit {text: "2 at once, then one every 30s" capacity: 2} key: "k" remaining: 0 retry_after {nanos: 250000000} reset_after {seconds: 3600}}
  verdict: VERDICT_DENIED
}`), m); err != nil {
		t.Fatal(err)
	}
	var s strings.Builder
	if err := writeInspectTree(&s, m, "", 0); err != nil {
		t.Fatal(err)
	}
	if want := `└─ user=x: denied
   ├─ rule user (limits.yaml:3)
   └─ limit: 2 at once, then one every 30s
      ├─ denies: 0 of 2 left, would allow this in 250ms, full again in 1h
      └─ key k
`; s.String() != want {
		t.Errorf("got\n%s\nwant\n%s", s.String(), want)
	}
}

// On a terminal, what people read is wrapped, and what they paste is not.
func TestExplainTreeIsWrapped(t *testing.T) {
	m := new(adminv1.ExplainResponse)
	if err := prototext.Unmarshal([]byte(`
summary: "It would pass: of its limits the nearest is the limit minute, with 1 left."
descriptors {
  entries {key: "user" value: "some one with a name that is longer than the terminal"}
  rule {path: "user" place {file: "limits.yaml" line: 3}}
  limits {limit {text: "2 at once, then one every 30s" capacity: 2} key: "d|user=some one with a name that is longer" allowed: true remaining: 1 reset_after {seconds: 30}}
  verdict: VERDICT_ALLOWED
  hints: "a word that is-longer-than-any-line-of-this-terminal stays as it is"
}`), m); err != nil {
		t.Fatal(err)
	}
	var s strings.Builder
	if err := writeExplainTree(&s, m, "", 40); err != nil {
		t.Fatal(err)
	}
	if want := `It would pass: of its limits the nearest
is the limit minute, with 1 left.
└─ 'user=some one with a name that is longer than the terminal':
   │ allowed
   ├─ rule user (limits.yaml:3)
   ├─ limit: 2 at once, then one every
   │  │ 30s
   │  ├─ allows: 1 of 2 left, full
   │  │    again in 30s
   │  └─ key d|user=some one with a name that is longer
   └─ note: a word that
        is-longer-than-any-line-of-this-terminal
        stays as it is
`; s.String() != want {
		t.Errorf("got\n%s\nwant\n%s", s.String(), want)
	}
}

// What a daemon says of ends, in UTC, is shown in the shell's time zone, as other commands
// show it.
func TestExplainedEndsAreOfTheShellsZone(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip("there are no time zones")
	}
	summer, winter := timestamppb.New(time.Date(2026, 7, 1, 22, 0, 0, 0, time.UTC)), timestamppb.New(time.Date(2026, 12, 24, 17, 0, 0, 500, time.UTC))
	of := &adminv1.Assignment{PlanUntil: summer, BlockedUntil: winter, Numbers: []*adminv1.AssignedNumbers{{Until: winter}}}
	for _, c := range []struct{ said, shown string }{
		{"plan pro until 2026-07-01T22:00:00Z, then the default free", "plan pro until 2026-07-02T00:00:00+02:00 CEST, then the default free"},
		{"It would be denied: tenant=x is blocked until 2026-12-24T17:00:00Z.", "It would be denied: tenant=x is blocked until 2026-12-24T18:00:00+01:00 CET."},
		{"denies all that begins with 'at=until 2026-01-01T00:00:00Z'", "denies all that begins with 'at=until 2026-01-01T00:00:00Z'"},
	} {
		if got := withEndsIn(berlin, c.said, of); got != c.shown {
			t.Errorf("%s is shown as %s, want %s", c.said, got, c.shown)
		}
		if got := withEndsIn(time.UTC, c.said, of); got != c.said {
			t.Errorf("%s is shown in UTC as %s", c.said, got)
		}
	}
}
