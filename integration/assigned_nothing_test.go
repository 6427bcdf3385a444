package integration

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// Changes that would do nothing for anybody are refused, and leave no trace, wherever
// states are kept.
func TestChangesThatHitNothingAreRefused(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string]func(t *testing.T) []string{
		"memory":  func(*testing.T) []string { return []string{"--store", "memory"} },
		"single":  func(t *testing.T) []string { return redisFlags("single", redistest.Single(t)) },
		"cluster": func(t *testing.T) []string { return redisFlags("cluster", redistest.Cluster(t)...) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := start(t, steered(t, tenantPlans, flags(t)...)...)
			for _, step := range []struct {
				args        string
				code        int
				out, stderr string // what they have
			}{
				{args: "block --domain api tennant=mallory", code: 1, out: "no descriptor here has the key tennant; did you mean tenant (", stderr: "use --force"},
				{args: "reset --domain api tenant=nobody", code: 1, stderr: "nothing is counted for tenant=nobody: year is full"},
				{args: "audit --domain api", out: "nothing was changed"},
				{args: "query --address " + d.grpc + " --domain api tenant=acme", out: "999,999 left"},
				{args: "reset --domain api tenant=Acme", code: 1, stderr: "nothing is counted for tenant=Acme"},
				{args: "reset --domain api tenant=acme", out: "reset  tenant=acme of api: year\n"},
				{args: "query --address " + d.grpc + " --domain api --peek tenant=acme", out: "1,000,000 left"},
				{args: "reset --domain api tenant=acme", code: 1, stderr: "use --force"},
				{args: "reset --domain api tenant=acme --force", out: "reset  tenant=acme of api: year\n", stderr: "warning: "},
				{args: "block --domain api tennant=mallory --force", out: "created ", stderr: "warning: "},
			} {
				out, stderr, code := d.steer("", strings.Fields(step.args)...)
				if code != step.code || !strings.Contains(out, step.out) || !strings.Contains(stderr, step.stderr) || step.stderr == "" && stderr != "" {
					t.Errorf("%s ends with %d: %s\n%s\nwant %d, %s and %s", step.args, code, stderr, out, step.code, step.stderr, step.out)
				}
			}
			if out, _, _ := d.steer("", "audit", "--domain", "api"); strings.Count(out, "\n") != 3 {
				t.Errorf("the audit has\n%s\nwant the two resets that were made, and the block", out)
			}
		})
	}
}
