package integration

import (
	"context"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// What a read-only Redis refuses is reported as refused, changes nothing and is not in the
// audit; an import ends with the reason.
func TestChangesThatRedisRefuses(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	d := start(t, steered(t, tenantPlans, redisFlags("single", server.Addr())...)...)
	d.importAll(rowsOf("acme", 3, "ten,,,first"))
	if out, stderr, code := d.steer("", "block", "--domain", "api", "tenant=mallory"); code != 0 {
		t.Fatalf("exits with %d: %s%s", code, out, stderr)
	}
	held := d.export()
	audit, _, _ := d.steer("", "audit")
	client := redistest.Client(t, server.Addr())
	if err := client.ReplicaOf(ctx, "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	const says = "refused by Redis, nothing was changed: READONLY "
	for _, args := range []string{
		"assign --domain api tenant=acme-000001 --plan three",
		"block --domain api tenant=acme-000001",
		"unassign --domain api tenant=acme-000001",
		"unblock --domain api tenant=mallory",
		"reset --domain api tenant=acme-000001 --force",
	} {
		out, stderr, code := d.steer("", strings.Fields(args)...)
		if code != 1 || !strings.Contains(out+stderr, says) || strings.Contains(out+stderr, "ask again") {
			t.Errorf("%s exits with %d: %s%s", args, code, out, stderr)
		}
	}
	sum, stderr, code := d.importRows(rowsOf("acme", 3, "three,,,second"))
	if code != 1 || sum.Unknown != 0 || sum.done() != 0 || !strings.Contains(stderr, says) {
		t.Errorf("an import exits with %d: %+v %s", code, sum, stderr)
	}
	if err := client.ReplicaOf(ctx, "no", "one").Err(); err != nil {
		t.Fatal(err)
	}
	if now := d.export(); strings.Join(now, "\n") != strings.Join(held, "\n") {
		t.Errorf("assigned is %q, and was %q", now, held)
	}
	if now, _, _ := d.steer("", "audit"); now != audit {
		t.Errorf("the audit is\n%s\nand was\n%s", now, audit)
	}
	asynctest.Eventually(t, "changes are made again", func() bool {
		_, _, code := d.steer("", "unblock", "--domain", "api", "tenant=mallory")
		return code == 0
	})
}
