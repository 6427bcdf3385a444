package redislog_test

import (
	"fmt"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/assigntest"
	"github.com/ratelimitd/ratelimitd/internal/assign/redislog"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// blocksOf returns how many assignments of a daemon block.
func blocksOf(d *daemon) (n int) {
	for a := range d.Table().All() {
		if a.Base.Blocked {
			n++
		}
	}
	return n
}

// Redis has more assignments than a daemon has room for. It leaves some out, but no block
// while there is as much room again, says so, and takes them in when there is room.
func TestNoMoreIsLoadedThanThereIsRoomFor(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	large := startLoaded(t, c, redislog.Options{Every: often})
	assigntest.Apply(t, large, plans(30, "p")...)
	var blocks []assign.Change
	for i := range 15 {
		blocks = append(blocks, block(fmt.Sprint("blocked ", i)))
	}
	assigntest.Apply(t, large, blocks...)
	var log asynctest.Buffer
	small := startLoaded(t, c, redislog.Options{MaxAssignments: 20, Every: often, Log: textLog(&log)})
	if n, left := small.Table().Len(), leftOut(small); n < 20 || n > 40 || blocksOf(small) != 15 || left != fmt.Sprint(0, 45-n) {
		t.Errorf("%d are in force, of which %d block; left out are %s", n, blocksOf(small), left)
	}
	if small.Lacks() == nil || log.Count("left out") != 1 {
		t.Errorf("lacks %v, and the log has %s", small.Lacks(), log.String())
	}
	if results, _ := small.Apply(t.Context(), []assign.Change{plan("more", "p")}); results[0].Outcome != assign.Full {
		t.Errorf("got %+v", results[0])
	}
	var gone []assign.Change
	for i := range 30 {
		gone = append(gone, assigntest.Delete(tenant(fmt.Sprint(i))))
	}
	for i, r := range assigntest.Apply(t, small, gone...) {
		if r.Outcome != assign.Deleted {
			t.Errorf("%d, which may be left out: %+v", i, r)
		}
	}
	asynctest.Eventually(t, "there is room", func() bool { return small.Table().Len() == 15 })
	if err := small.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	converge(t, small, large)
	if small.Lacks() != nil || leftOut(small) != "0 0" {
		t.Errorf("lacks %v, left out are %s", small.Lacks(), leftOut(small))
	}
	// It once had all, so it goes on with what it has room for.
	assigntest.Apply(t, large, plans(30, "p")...)
	asynctest.Eventually(t, "some are left out", func() bool { return leftOut(small) != "0 0" })
	if small.Lacks() != nil {
		t.Error(small.Lacks())
	}
}

func leftOut(d *daemon) string { return fmt.Sprint(d.LeftOut()) }
