package ask_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

func TestSupportCommands(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	f.Run(t, "assign", "--domain", "api", "tenant=acme", "--plan", "pro", "--reason", "contract")
	f.Run(t, "unassign", "--domain", "api", "tenant=acme", "--reason", "over")
	f.Run(t, "undo", "--domain", "api", "tenant=acme")
	for _, c := range []struct{ args, want string }{
		{"audit --domain api tenant=acme", `2026-05-04T03:02:01Z  ops  tenant=acme of api: undo: plan pro, contract
2026-05-04T03:02:01Z  ops  tenant=acme of api: nothing assigned; reason: over; before: plan pro, contract
2026-05-04T03:02:01Z  ops  tenant=acme of api: plan pro, contract
`},
		{"audit -n 1", "2026-05-04T03:02:01Z  ops  tenant=acme of api: undo: plan pro, contract\n"},
		{"audit --domain login", "nothing was changed\n"},
		{"audit --domain logn", "nothing was changed\n"},
		{"assignments --domain login", "nothing is assigned\n"},
	} {
		out, stderr, code := f.Run(t, strings.Fields(c.args)...)
		if code != 0 || out != c.want {
			t.Errorf("%s exits with %d: %q\n%s\nwant\n%s", c.args, code, stderr, out, c.want)
		}
	}
}

// Each line of --json is one object, with the names of the API.
func TestJSONHasALineForEachResult(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	for _, c := range []struct {
		args  string
		lines int
		field string
	}{
		{"assign --json --domain api tenant=a tenant=b --plan pro", 2, "outcome"},
		{"block --json --domain api tenant=c", 1, "after"},
		{"assignments --json", 3, "made_by"},
		{"audit --json", 3, "made_by"},
		{"unassign --json --domain api tenant=a", 1, "outcome"},
		{"unblock --json --domain api tenant=c", 1, "before"},
	} {
		out, stderr, code := f.Run(t, strings.Fields(c.args)...)
		lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		if code != 0 || len(lines) != c.lines {
			t.Errorf("%s exits with %d: %q\n%s", c.args, code, stderr, out)
		}
		for _, line := range lines {
			var m map[string]any
			if err := json.Unmarshal([]byte(line), &m); err != nil || m[c.field] == nil {
				t.Errorf("%s prints %s, which lacks %s: %v", c.args, line, c.field, err)
			}
		}
	}
}

// A question about an unknown domain says so.
func TestUnknownDomainIsToldOf(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	for args, want := range map[string]string{
		"assignments --domain logn": "no limits have the domain \"logn\"\n", "audit --domain logn": "no limits have the domain \"logn\"\n",
		"assignments --domain login": "", "assignments": "",
	} {
		if _, stderr, code := f.Run(t, strings.Fields(args)...); code != 0 || stderr != want {
			t.Errorf("%s exits with %d: %q, want %q", args, code, stderr, want)
		}
	}
}

// Who explains why limits that were written do not hold learns that their load failed.
func TestExplainSaysThatALoadFailed(t *testing.T) {
	d := servertest.Start(t, reservedLimits)
	for _, step := range []struct{ limits, want string }{
		{"descriptors: 5", "It would pass: no limits have its domain. The last load of limits failed: older ones are in force.\n"},
		{reservedLimits, "It would pass: no limits have its domain.\n"},
	} {
		if err := os.WriteFile(d.File, []byte(step.limits), 0o600); err != nil {
			t.Fatal(err)
		}
		_ = d.Live.Reload()
		out, stderr, code := clitest.Run(t, "", "ratelimitd", "explain", "--admin-address", d.Server.Address("admin"), "--domain", "other", "user=alice")
		if code != 0 || !strings.HasPrefix(out, step.want) {
			t.Errorf("explain exits with %d: %s%s, want %s", code, stderr, out, step.want)
		}
	}
}
