package ask

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"

	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// written is what people see of an explanation in the text form of messages.
func written(t *testing.T, x explained, message string) string {
	t.Helper()
	m := new(adminv1.ExplainResponse)
	if err := prototext.Unmarshal([]byte(message), m); err != nil {
		t.Fatal(err)
	}
	var s strings.Builder
	x.now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	if err := x.writeRequest(&s, m); err != nil {
		t.Fatal(err)
	}
	return s.String()
}

func TestExplainTree(t *testing.T) {
	for _, tc := range []struct{ name, message, want string }{
		{"denied", `
domain_known: true denied_by_descriptor: 1 denied_by_limit: 0
descriptors {
  entries {key: "tenant" value: "acme"} entries {key: "user" value: "a b"}
  rule {path: "tenant=acme / user" place {file: "limits.yaml" line: 5} quota_mode: true}
  plan: "pro"
  assignments {
    assignment {
      entries {key: "tenant" value: "acme"} plan: "pro" reason: "contract"
      temporary {numbers {limit: "minute" requests: 20} reason: "relief" until {seconds: 1767355200}}
    }
    applies: true
  }
  assignments {
    assignment {entries {key: "tenant" value: "acme"} entries {key: "user" value: "a b"} plan: "gold"}
  }
  limits {
    limit {name: "minute" text: "10 at once, then one every 6s" capacity: 20} source: SOURCE_ASSIGNMENT
    key: "rl{4}:d|tenant=acme" hash_tag: "4" node: "redis-1:6379" allowed: true remaining: 7 reset_after {seconds: 65}
    on_store_failure: "local" daemons: 3 share {text: "3 at once, then one every 20s"}
  }
  limits {
    limit {algorithm: ALGORITHM_TOKEN_BUCKET name: "login" text: "5 requests a minute, and who goes over is paused for 10m" requests: 5 period {seconds: 60} capacity: 5}
    source: SOURCE_FILE key: "k5" retry_after {seconds: 540} reset_after {seconds: 540} paused_until {seconds: 1767269340}
  }
  limits {
    limit {text: "1 at once, then one every 30d" capacity: 1} source: SOURCE_FILE key: "k" shadow: true
    retry_after {seconds: 961200} reset_after {seconds: 961200}
  }
  limits {
    limit {name: "next" text: "5 at once, then one every 12s; shadow" capacity: 5} source: SOURCE_FILE key: "k1" shadow: true allowed: true remaining: 5
    on_store_failure: "allow"
  }
  verdict: VERDICT_ALLOWED
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
It would be denied: the limit without a name of user=x (denies always) never allows anything.
├─ 'tenant=acme,user=a b': allowed
│  ├─ rule tenant=acme / user (limits.yaml:5), plan pro, quota_mode
│  ├─ assignment to tenant=acme: plan pro, contract; until tomorrow 12:00 20 a minute, relief
│  ├─ assignment to 'tenant=acme,user=a b': plan gold; it changes nothing here
│  ├─ limit minute: 10 at once, then one every 6s, numbers of an assignment
│  │  ├─ allows: 7 of 20 left, full again in 1m 5s
│  │  ├─ key rl{4}:d|tenant=acme, hash tag 4, on redis-1:6379
│  │  └─ if the store fails: local, as one of 3: 3 at once, then one every 20s
│  ├─ limit login: 5 requests a minute, and who goes over is paused for 10m
│  │  ├─ denies: 0 of 5 left, would allow this in 9m, full again in 9m
│  │  ├─ paused until today 12:09, after going over 5 a minute
│  │  └─ key k5
│  ├─ limit: 1 at once, then one every 30d
│  │  ├─ would deny, but is not in force for this subject: 0 of 1 left, would allow this in 11d 3h, full again in 11d 3h
│  │  └─ key k
│  └─ limit next: 5 at once, then one every 12s; shadow
│     ├─ would allow, and is not in force for this subject: 5 of 5 left
│     ├─ key k1
│     └─ if the store fails: allow
└─ user=x: denied (this denies the request)
   ├─ rule user (xds)
   └─ limit: denies always, numbers of the request
      ├─ denies the request: 0 of 0 left, can never allow this
      └─ key k2
`},
		{"blocked", `
denied_by_descriptor: 0 degraded: true
descriptors {
  entries {key: "user" value: "x"} entries {key: "route" value: "/"}
  miss: MISS_TOO_LONG depth: 1 reached {path: "user" place {file: "limits.yaml" line: 3}} near {path: "user" place {file: "limits.yaml" line: 3}}
  assignments { assignment {entries {key: "user" value: "x"} blocked: true made_by: "ops"} applies: true }
  verdict: VERDICT_BLOCKED
}
`, `
It would be denied: user=x is blocked. The store does not answer: this is what decides in its place.
└─ user=x,route=/: blocked (this denies the request)
   ├─ no rule: user (limits.yaml:3) has a limit, but the descriptor goes on with route=/, and a rule is only for descriptors of its own length
   └─ assignment to user=x: blocked
`},
		{"no rule", `
domain_known: true allowed: true
descriptors {
  entries {key: "tenant" value: "acme"} entries {key: "uzer" value: "x"}
  miss: MISS_KEY depth: 1 reached {path: "tenant" place {file: "limits.yaml" line: 3}} near {path: "tenant / user" place {file: "limits.yaml" line: 5}}
  verdict: VERDICT_UNMATCHED_ALLOWED
}
descriptors {entries {key: "tenant" value: "x"} rule {path: "tenant" place {file: "limits.yaml" line: 3}} verdict: VERDICT_UNMATCHED_ALLOWED}
`, `
It would pass: no rule is for it.
├─ tenant=acme,uzer=x: allowed, since no rule is for it
│  └─ no rule: no descriptor below tenant (limits.yaml:3) has the key uzer; did you mean tenant / user (limits.yaml:5)?
└─ tenant=x: allowed, since no rule is for it
   └─ rule tenant (limits.yaml:3), none of its plans
`},
		{"a debt from other numbers", `
denied_by_descriptor: 0 denied_by_limit: 0 retry_after {seconds: 50}
descriptors {
  entries {key: "user" value: "x"}
  rule {path: "user" place {file: "limits.yaml" line: 3}}
  limits {
    limit {algorithm: ALGORITHM_TOKEN_BUCKET requests: 10 period {seconds: 60} text: "10 at once, then one every 6s" capacity: 10} key: "k"
    retry_after {seconds: 50} reset_after {seconds: 50}
  }
  limits {
    limit {algorithm: ALGORITHM_TOKEN_BUCKET requests: 10 period {seconds: 60} text: "10 at once, then one every 6s" capacity: 10} key: "l"
    retry_after {seconds: 6} reset_after {seconds: 60}
  }
  verdict: VERDICT_DENIED
}
`, `
It would be denied: the limit without a name of user=x (10 at once, then one every 6s) has 0 left, and would allow it in 50s.
└─ user=x: denied (this denies the request)
   ├─ rule user (limits.yaml:3)
   ├─ limit: 10 at once, then one every 6s
   │  ├─ denies the request: 0 of 10 left, would allow this in 50s, full again in 50s
   │  ├─ counted under other numbers, and forgotten in 50s
   │  └─ key k
   └─ limit: 10 at once, then one every 6s
      ├─ denies: 0 of 10 left, would allow this in 6s, full again in 1m
      └─ key l
`},
		{"what a terminal would obey", `
allowed: true near_domain: "\033[2J"
descriptors {entries {key: "a\n" value: "\033]0;x\007"} verdict: VERDICT_UNMATCHED_ALLOWED}
descriptors {verdict: VERDICT_UNMATCHED_DENIED}
`, `
It would pass: no limits have its domain; did you mean $'\033[2J'?
├─ 'a\u{a}=\u{1b}]0;x\u{7}': allowed, since no rule is for it
│  └─ no rule
└─ no entries: denied, since no rule is for it
   └─ no rule
`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, want := written(t, explained{}, tc.message), strings.TrimPrefix(tc.want, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// The first sentence says who denies, and when it passes.
func TestSummaries(t *testing.T) {
	const limit = `limits {limit {name: "minute" text: "3 at once, then one every 20s" requests: 3 capacity: 3} `
	denied := func(of, limit string) string {
		return `domain_known: true denied_by_descriptor: 0 ` + of + ` descriptors {entries {key: "user" value: "x"} ` + limit + `}`
	}
	passes := func(descriptor string) string {
		return `domain_known: true allowed: true descriptors {entries {key: "user" value: "x"} ` + descriptor + `}`
	}
	const minute = "the limit minute of user=x (3 at once, then one every 20s)"
	for want, message := range map[string]string{
		"It would be denied: " + minute + " has 0 left, and would allow it in 20s.":                 denied("denied_by_limit: 0 retry_after {seconds: 20}", limit+"retry_after {seconds: 20}}"),
		"It would be denied: " + minute + " never allows a cost of 4, more than its capacity of 3.": denied("denied_by_limit: 0", limit+"}"),
		"It would be denied: " + minute + " has none left, and would allow it once a slot is released, or in 58s if none is renewed.": denied("denied_by_limit: 0 retry_unknown: true",
			limit+"free_at_latest {seconds: 58}}"),
		"It would be denied: " + minute + " has none left, and would allow it once a slot is released.": denied("denied_by_limit: 0 retry_unknown: true", limit+"}"),
		"It would be denied: " + minute + " has paused it for another 9m.":                              denied("denied_by_limit: 0 retry_after {seconds: 540}", limit+"retry_after {seconds: 540} paused_until {seconds: 1767269340}}"),
		"It would be denied: tenant=acme is blocked for another 23h.": denied("retry_after {seconds: 82800}",
			`verdict: VERDICT_BLOCKED assignments {} assignments {applies: true assignment {entries {key: "tenant" value: "acme"} blocked: true}}`),
		"It would be denied: no rule is for user=x, and its domain denies what has none.": denied("", "verdict: VERDICT_UNMATCHED_DENIED"),
		"It would pass: of its limits the nearest is " + minute + ", with 1 left.":        passes(limit + "remaining: 2} " + limit + "remaining: 1} " + limit + "shadow: true}"),
		"It would pass, though user=x would be denied: that is in shadow mode.":           passes("verdict: VERDICT_SHADOWED " + limit + "}"),
		"It would pass: no rule is for it.":                                               passes("verdict: VERDICT_UNMATCHED_ALLOWED"),
		"It would pass: no limit is in force for it.":                                     passes("verdict: VERDICT_UNLIMITED"),
		"It would pass: no limits have its domain; did you mean api?":                     `allowed: true near_domain: "api" descriptors {}`,
		"It would pass: no limits have its domain.":                                       `allowed: true descriptors {}`,
	} {
		if got, _, _ := strings.Cut(written(t, explained{cost: 4}, message), "\n"); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

func TestInspectTree(t *testing.T) {
	m := new(adminv1.InspectResponse)
	if err := prototext.Unmarshal([]byte(`
degraded: true
descriptor {
  entries {key: "user" value: "x"}
  rule {path: "user" place {file: "limits.yaml" line: 3}}
  limits {limit {text: "2 at once, then one every 30s" capacity: 2} key: "k" remaining: 0 retry_after {nanos: 250000000} reset_after {seconds: 3600}}
  verdict: VERDICT_DENIED
}`), m); err != nil {
		t.Fatal(err)
	}
	var s strings.Builder
	if err := new(explained).writeSubject(&s, m); err != nil {
		t.Fatal(err)
	}
	if want := `The store does not answer: this is what decides in its place.
└─ user=x: denied
   ├─ rule user (limits.yaml:3)
   └─ limit: 2 at once, then one every 30s
      ├─ denies: 0 of 2 left, would allow this in 250ms, full again in 1h
      └─ key k
`; s.String() != want {
		t.Errorf("got\n%s\nwant\n%s", s.String(), want)
	}
}
