package ask_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// step is a command without the program's name, its exit code, and parts of what it prints.
type step struct {
	args string
	code int
	out  []string
	err  string
}

// runSteps runs commands against a daemon with these limits, one after the other.
func runSteps(t *testing.T, limits string, steps []step) {
	t.Helper()
	clitest.StartDaemon(t, limits, filetest.Write(t, t.TempDir(), "tokens.yaml", fmt.Sprintf("- {name: ops, role: operator, sha256: %x}\n", sha256.Sum256([]byte("secret")))))
	t.Setenv(dial.TokenVariable, "secret")
	for _, s := range steps {
		out, stderr, code := clitest.Run(t, "", clitest.Words("ratelimitd "+s.args)...)
		if code != s.code || !strings.Contains(stderr, s.err) || s.err == "" && stderr != "" {
			t.Errorf("%s exits with %d: %s\n%s\nwant %d: %s", s.args, code, stderr, out, s.code, s.err)
		}
		for _, want := range s.out {
			if !strings.Contains(out, want) {
				t.Errorf("%s prints\n%s\nwant\n%s", s.args, out, want)
			}
		}
	}
}

const reservedLimits = `
domain: llm
descriptors:
- key: user
  rate_limit: {name: hour, algorithm: fixed_window, requests: 10000, period: 366d}
- key: team
  rate_limits:
  - {name: month, algorithm: fixed_window, requests: 20000, period: 366d}
  - {name: year, algorithm: fixed_window, requests: 100000, period: 366d}
- {key: free, rate_limit: {unlimited: true}}
`

// What people say with take --id, settle, and inspect --id, and what they see.
func TestReservationsAreSettled(t *testing.T) {
	runSteps(t, reservedLimits, []step{
		// Somebody tries it out: what is reserved, by whom, how to go on.
		{args: "take --domain llm --cost 4000 --id req-1 --settle-within 2h user=alice", out: []string{
			"allowed  user=alice  hour: 6,000 left;", "\nthen: ratelimitd settle --domain llm --id req-1 user=alice --cost USED\n",
		}},
		{args: "inspect --domain llm --id req-1 user=alice", out: []string{"the id req-1 has charged 4,000, by 1 take; it can be settled for 2h\n"}},
		{args: "settle --domain llm --id req-1 --cost 812 user=alice", out: []string{"settled  user=alice  hour: 3,188 went back; 9,188 left; full again in "}},
		// It was not yet all: the last word counts.
		{args: "settle --domain llm --id req-1 --cost 5000 user=alice", out: []string{"settled  user=alice  hour: 4,188 charged beyond what was taken; 5,000 left;"}},
		{args: "settle --domain llm --id req-1 --cost 5000 user=alice", out: []string{"settled  user=alice  hour: nothing went back, and nothing more was charged; 5,000 left;"}},
		// Support gives back what a lost request had reserved.
		{args: "settle --domain llm --id req-1 --cost 0 user=alice", out: []string{"settled  user=alice  hour: 5,000 went back; 10,000 left"}},
		{args: "explain --domain llm --id req-1 user=alice", out: []string{"It would pass", "the id req-1 has charged 0, by 1 take; it can be settled for 2h\n"}},
		// A take that was repeated, and several limits and descriptors at once.
		{args: "take --domain llm --cost 100 --count 2 --id req-2 user=alice team=red", out: []string{"then: ratelimitd settle --domain llm --id req-2 user=alice team=red --cost USED\n"}},
		{args: "settle --domain llm --id req-2 --cost 50 user=alice team=red", out: []string{
			"settled  user=alice  hour: 150 went back; 9,950 left;", "; 2 takes have this id\n", "settled  team=red    month: 150 went back;", "settled  team=red    year: 150 went back;",
		}},
		// A script reads JSON, in which numbers are numbers.
		{args: "settle --json --domain llm --id req-2 --cost 60 user=alice", out: []string{`{"settled":true,"limits":[{"descriptor_index":0,"name":"hour",`, `"returned":0,"added":10,"takes":2,"remaining":9940,`}},
		{args: "inspect --json --domain llm --id req-2 user=alice", out: []string{`"bill":{"cost":60,"takes":2,"left":"`}},
		{args: "inspect --json --domain llm user=alice", out: []string{`"holders_total":0}`}},
	})
}

// What people get wrong with them, and what they see then.
func TestWrongSettlementsSayWhy(t *testing.T) {
	const nothing = "nothing is known of this id; nothing has changed\n"
	runSteps(t, reservedLimits, []step{
		{args: "take --domain llm --cost 400 --id req-1 user=alice"},
		{args: "settle --domain llm --id req-1 user=alice", code: cmdline.ExitError, err: "found no --cost; ratelimitd settle needs it."},
		{args: "settle --domain llm --cost 5 user=alice", code: cmdline.ExitError, err: "found no --id; ratelimitd settle needs it."},
		{args: "settle --domain llm --id req-1 --cost -5 user=alice", code: cmdline.ExitError, err: `flag --cost: found "-5"; allowed: a whole number from 0 to 4503599627370496`},
		{args: `settle --domain llm --id "" --cost 5 user=alice`, code: cmdline.ExitError, err: `flag --id: found ""; allowed: 1 to 64 bytes, such as a UUID`},
		{args: "settle --domain llm --id " + strings.Repeat("x", 65) + " --cost 5 user=alice", code: cmdline.ExitError, err: "id: found 65 bytes; allowed: 1 to 64"},
		{args: "settle --domain llm --id req-1 --cost 5", code: cmdline.ExitError, err: "found no argument; allowed: a descriptor of the request, such as user=alice."},
		// Another id, other descriptors, no rule, no limit: the estimate stands.
		{args: "settle --domain llm --id req-7 --cost 5 user=alice", code: cmdline.ExitError, out: []string{
			"unknown  user=alice  hour: " + nothing, "why: ratelimitd inspect --domain llm --id req-7 user=alice\n",
		}},
		{args: "inspect --domain llm --id req-7 user=alice", out: []string{"nothing is known of the id req-7: nothing was taken with it, or it was denied or given back, or it was too long ago\n"}},
		{args: "settle --domain llm --id req-1 --cost 5 user=alice user=bob", code: cmdline.ExitError, out: []string{"settled  user=alice  hour: 395 went back;", "unknown  user=bob    hour: " + nothing}},
		{args: "settle --domain llm --id req-1 --cost 5 usr=alice", code: cmdline.ExitError, out: []string{"unknown  usr=alice  no limit applies; nothing has changed\n"}},
		{args: "settle --json --domain llm --id req-7 --cost 5 user=alice", code: cmdline.ExitError, out: []string{`{"settled":false,`}},
		// A denied take has reserved nothing.
		{args: "take --domain llm --cost 10001 --id req-9 user=alice", code: cmdline.ExitDenied, out: []string{"denied   user=alice"}},
		{args: "settle --domain llm --id req-9 --cost 5 user=alice", code: cmdline.ExitError, out: []string{"unknown  user=alice  hour: " + nothing}},
		// Flags that do not go together.
		{args: "take --domain llm --peek --id req-1 user=alice", code: cmdline.ExitError, err: "found --id beside --peek; allowed: one of them"},
		{args: "take --domain llm --settle-within 5m user=alice", code: cmdline.ExitError, err: "flag --settle-within: found 5m0s without --id; allowed: beside the id by which the request is settled"},
		{args: "take --domain llm --id req-1 --settle-within 25h user=alice", code: cmdline.ExitError, err: `flag --settle-within: found "25h"; allowed: 1us to 24h with a unit, such as 90s or 2h`},
		{args: `take --domain llm --id "" user=alice`, code: cmdline.ExitError, err: `flag --id: found ""; allowed: 1 to 64 bytes, such as a UUID`},
		{args: "inspect --domain llm --caller shop user=alice", code: cmdline.ExitError, err: "found --caller without --id; allowed: beside the id of the caller's take"},
		{args: "inspect --domain llm --id req-1 --caller shop user=alice", out: []string{"nothing is known of the id req-1"}},
		{args: "take --domain llm --id req-5 free=x", out: []string{"allowed  free=x  no limit applies\n"}},
	})
}

const heldLimits = `
domain: api
descriptors:
- {key: user, rate_limit: {requests: 5, period: 1s}}
- key: worker
  descriptors:
  - {key: job, rate_limit: {name: jobs, algorithm: concurrency, requests: 3, hold: 1h}}
`

// What people say with release, and get wrong, and what they see.
func TestSlotsAreReleased(t *testing.T) {
	runSteps(t, heldLimits, []step{
		{args: "take --domain api worker=pool,job=1 worker=pool,job=2", out: []string{"jobs: 1 left; 3 in flight, each free after 1h of silence; held for 1h"}},
		{args: "release --domain api worker=pool,job=1", out: []string{"released  worker=pool,job=1  jobs: 2 left\n"}},
		// It comes twice, or for one of two who holds nothing.
		{args: "release --domain api worker=pool,job=1", code: cmdline.ExitError, out: []string{"nothing  worker=pool,job=1  jobs: it held no slot; 2 left\n"}},
		{args: "release --domain api worker=pool,job=1 worker=pool,job=2", code: cmdline.ExitError, out: []string{
			"nothing   worker=pool,job=1  jobs: it held no slot; ", "released  worker=pool,job=2  jobs: 3 left\n",
		}},
		{args: "release --json --domain api worker=pool,job=2", code: cmdline.ExitError, out: []string{`{"limits":[{"descriptor_index":0,"name":"jobs","released":"RELEASED_NOTHING","remaining":3}],"degraded":false}`}},
		{args: "release --domain api user=alice usr=bob", code: cmdline.ExitError, out: []string{
			"nothing  user=alice  no limit of requests in flight applies\n", "nothing  usr=bob     no limit of requests in flight applies\n",
		}},
		{args: "release --domain api worker=pool,job=", code: cmdline.ExitError, err: "descriptors[0].entries[1].value: found an empty text"},
		{args: "release --domain api", code: cmdline.ExitError, err: "found no argument; allowed: a descriptor whose last entry names a holder"},
		{args: "release worker=pool,job=1", code: cmdline.ExitError, err: "found no --domain; ratelimitd release needs it."},
		{args: `release --domain "" worker=pool,job=1`, code: cmdline.ExitError, err: "answers InvalidArgument: domain is empty"},
		{args: "release --domain api --cost 5 worker=pool,job=1", code: cmdline.ExitError, err: "flag --cost: ratelimitd release has no such flag; ratelimitd explain has it"},
	})
}

// Who releases after the hold has ended learns that it was too short.
func TestLateReleaseSaysSo(t *testing.T) {
	d := servertest.Start(t, heldLimits)
	d.Take("worker=pool,job=1")
	d.Clock.Move(90 * time.Minute)
	out, stderr, code := clitest.Run(t, "", "ratelimitd", "release", "--address", d.Server.Address("grpc"), "--domain", "api", "worker=pool,job=1")
	if code != cmdline.ExitError || stderr != "" || out != "too late  worker=pool,job=1  jobs: its slot had lapsed before, when its hold ended; 3 left\n" {
		t.Errorf("release exits with %d: %s%s", code, stderr, out)
	}
}

// What a command recommends asks the daemon that it asked itself.
func TestRecommendedCommandsAskTheSameDaemon(t *testing.T) {
	d := servertest.Start(t, reservedLimits)
	at := d.Server.Address("grpc")
	out, stderr, code := clitest.Run(t, "", "ratelimitd", "take", "--address", at, "--domain", "llm", "--id", "req-1", "user=alice", "usr=bob")
	if code != 0 || !strings.Contains(out, "\nthen: ratelimitd settle --address="+at+" --domain llm --id req-1 user=alice usr=bob --cost USED\n"+
		"why: ratelimitd explain --admin-address HOST:PORT --domain llm user=alice usr=bob\n") {
		t.Errorf("take exits with %d: %s%s", code, stderr, out)
	}
	out, stderr, code = clitest.Run(t, "", "ratelimitd", "settle", "--address", at, "--domain", "llm", "--id", "req-2", "--cost", "1", "user=alice")
	if code != cmdline.ExitError || !strings.HasSuffix(out, "\nwhy: ratelimitd inspect --admin-address HOST:PORT --domain llm --id req-2 user=alice\n") {
		t.Errorf("settle exits with %d: %s%s", code, stderr, out)
	}
}

// A leased limit is explained in the words of check: its capacity is less than its burst.
func TestLeaseIsExplained(t *testing.T) {
	runSteps(t, "domain: api\ndescriptors: [{key: user, rate_limit: {algorithm: token_bucket, requests: 1000, period: 1s, lease: 100ms}}]", []step{
		{args: "explain --domain api user=alice", out: []string{
			"limit: 1,000 at once, then 1,000 a second; decided in the caller for up to 100ms; bursts of 900 instead of 1,000\n", "allows: 900 of 900 left",
		}},
	})
}
