//go:build !race

// The race detector has memory of its own.

package top_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/heaptest"
	"github.com/ratelimitd/ratelimitd/internal/top"
)

// fill has an hour and more of subjects that never come again, each pane full.
func fill(tops []*top.Top, length int) (now time.Duration) {
	var room [top.MaxSubject]byte
	for i := range 62 * 6 {
		now = time.Duration(i) * 10 * time.Second
		for j := range 1000 {
			value := fmt.Sprint(i, j, strings.Repeat("x", length))
			text := top.AppendSubject(room[:0], []bucket.Entry{{Key: "user", Value: value}})
			for _, tp := range tops {
				tp.Add(now, text, 1)
			}
		}
	}
	return now
}

// Two for one rule, of what was denied and of what was used.
func TestOneRuleTakesLessThanAMegabyte(t *testing.T) {
	for _, length := range []int{20, 300} {
		before := heaptest.InUse()
		budget := top.NewBudget(64 << 20)
		tops := []*top.Top{top.New(budget), top.New(budget)}
		fill(tops, length)
		took := heaptest.InUse() - before
		t.Logf("subjects of %d bytes: %d bytes, %d by its own count", length, took, budget.Held())
		if took > 1_000_000 || took < 200_000 {
			t.Errorf("with subjects of %d bytes it takes %d bytes", length, took)
		}
		runtime.KeepAlive(tops)
	}
}

func TestAThousandRulesTakeNoMoreThanTheBudget(t *testing.T) {
	const bytes = 8 << 20
	before := heaptest.InUse()
	budget := top.NewBudget(bytes)
	tops := make([]*top.Top, 2000)
	for i := range tops {
		tops[i] = top.New(budget)
	}
	for i := 0; i < len(tops); i += 500 { // the first must leave something to the last
		var room [top.MaxSubject]byte
		for pane := range 10 {
			for j := range 50 {
				text := top.AppendSubject(room[:0], []bucket.Entry{{Key: "user", Value: fmt.Sprint(pane, j, strings.Repeat("x", 300))}})
				for _, tp := range tops[:i+500] {
					tp.Add(time.Duration(i/500*10+pane)*10*time.Second, text, 1)
				}
			}
		}
	}
	took := heaptest.InUse() - before
	fixed := int64(len(tops)) * 1500 // what is there of each, and of its panes, before anything is in it
	t.Logf("%d bytes, %d by its own count", took, budget.Held())
	if took > bytes+bytes/8+fixed {
		t.Errorf("it takes %d bytes", took)
	}
	runtime.KeepAlive(tops)
}
