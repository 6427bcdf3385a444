package integration

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// An import during which Redis fails over says what it did. Running it again mends
// what it did not do, and what the failover lost.
func TestImportWhileRedisFailsOver(t *testing.T) {
	t.Parallel()
	const n = 12_000
	c := redistest.StartCluster(t, 1, "--cluster-require-full-coverage", "no")
	flags := steered(t, tenantPlans, redisFlags("cluster", c.Addrs()...)...)
	daemons := startAll(t, 3, flags...)
	rows := rowsOf("acme", n, "ten,year=7,,nightly")
	var sum imported
	var stderr string
	var code int
	var wait sync.WaitGroup
	wait.Go(func() { sum, stderr, code = daemons[0].importRows(rows) })
	asynctest.Eventually(t, "the import is under way", func() bool { return daemons[1].total("ratelimitd_assignments") > n/10 })
	c.Masters[0].Kill()
	wait.Wait()
	t.Logf("the import ends with %d: %+v\n%s", code, sum, stderr)
	if sum.Created == 0 || code != 0 && code != 4 && !strings.Contains(stderr, "run it again") {
		t.Errorf("the import ends with %d: %+v\n%s", code, sum, stderr)
	}
	witness := redistest.Client(t, c.Masters[1].Addr())
	asynctest.Eventually(t, "a replica is promoted", func() bool {
		addr, err := masterOf(witness, 0)
		return err == nil && addr != c.Masters[0].Addr()
	})
	want := exportOf(t, rows)
	for _, d := range daemons {
		got := d.export()
		if len(got) > sum.done()+sum.Unknown {
			t.Errorf("%d rows are in force, and the import tells of %+v", len(got), sum)
		}
		isWanted := make(map[string]bool)
		for _, line := range want {
			isWanted[line] = true
		}
		for _, line := range got {
			if !isWanted[line] {
				t.Errorf("half of a row is in force: %s", line)
			}
		}
	}
	try := 0
	asynctest.Eventually(t, "a repeated import makes all rows", func() bool {
		try++
		again, _, _ := daemons[try%3].importRows(rows)
		return again.done() == n
	})
	if got := wantSame(t, daemons...); !slices.Equal(got, want) {
		t.Errorf("%d rows are in force, of %d", len(got), len(want))
	}
	if sum := daemons[2].importAll(rows); sum.Unchanged != n {
		t.Errorf("of rows that are in force: %+v", sum)
	}
	c.Masters[0].Restart()
	c.WaitOK()
	if got := wantSame(t, append(daemons, start(t, flags...))...); !slices.Equal(got, want) {
		t.Errorf("once the former master is back %d rows are in force, of %d", len(got), len(want))
	}
}
