package replay

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
	"github.com/ratelimitd/ratelimitd/internal/server/record"
)

// maxDifferences bounds the differences that a comparison shows.
const maxDifferences = 20

// Comparison says whether a replay decided what was recorded.
type Comparison struct {
	// Equal and Different count requests. Degraded ones are in neither.
	Equal     uint64 `json:"equal"`
	Different uint64 `json:"different"`
	// Remembered were denied from a daemon's memory of a denial. They took nothing and
	// have no time on the store's clock, so nothing is compared.
	Remembered uint64 `json:"remembered"`
	// First are the first differences.
	First []Difference `json:"first"`
	// Unread counts lines that could not be read.
	Unread uint64 `json:"-"`
}

// Difference is a difference in a line.
type Difference struct {
	Log  string `json:"log"`
	Line int64  `json:"line"`
	// What names the number: "descriptors[0] second: remaining".
	What     string `json:"what"`
	Recorded string `json:"recorded"`
	Replayed string `json:"replayed"`
}

// compare compares a line with the call made from it.
func (k *Comparison) compare(l *Record, c *decide.Call) {
	if isRemembered(&l.Line) {
		k.Remembered++
		return
	}
	k.add(l, differenceOf(&l.Line, c))
}

// add counts a line and its first difference, which is nil if there is none.
func (k *Comparison) add(l *Record, d *Difference) {
	if d == nil {
		k.Equal++
		return
	}
	k.Different++
	if len(k.First) < maxDifferences {
		d.Log, d.Line = l.Log, l.Number
		k.First = append(k.First, *d)
	}
}

// isRemembered reports whether a line was denied without asking the store.
func isRemembered(l *decisionlog.Line) bool {
	for i := range l.Descriptors {
		for j := range l.Descriptors[i].Limits {
			if l.Descriptors[i].Limits[j].Remembered {
				return true
			}
		}
	}
	return false
}

// differenceOf returns the first difference, or nil.
func differenceOf(l *decisionlog.Line, c *decide.Call) *Difference {
	got := decisionlog.Allowed
	if c.Denied {
		got = decisionlog.Denied
	}
	if l.Result != got {
		return &Difference{What: "result", Recorded: l.Result.String(), Replayed: got.String()}
	}
	refused := c.Denied && isRefused(l, blocked, unmatched)
	for i := range c.Outcomes {
		d, o := &l.Descriptors[i], &c.Outcomes[i]
		if refused && isAside(d) {
			continue
		}
		if got := record.ResultOf(c, o); d.Result != got {
			return &Difference{What: fmt.Sprintf("descriptors[%d]: result", i), Recorded: d.Result.String(), Replayed: got.String()}
		}
		if len(d.Limits) != len(o.Decisions) {
			return &Difference{What: fmt.Sprintf("descriptors[%d]: limits", i), Recorded: fmt.Sprint(len(d.Limits)), Replayed: fmt.Sprint(len(o.Decisions))}
		}
		for j := range d.Limits {
			if diff := limitDifference(&d.Limits[j], &o.Decisions[j]); diff != nil {
				diff.What = fmt.Sprintf("descriptors[%d] %s: %s", i, strings.Clone(d.Limits[j].Name), diff.What)
				return diff
			}
		}
	}
	return nil
}

// isRefused reports whether a line has a descriptor for which no limit was asked, for one
// of these reasons.
func isRefused(l *decisionlog.Line, reasons ...string) bool {
	return slices.ContainsFunc(l.Descriptors, func(d decisionlog.Descriptor) bool { return slices.Contains(reasons, d.Refusal) })
}

// isAside reports whether a descriptor beside a refusal was checked separately, when
// others may have taken since the time of the line. It took nothing.
func isAside(d *decisionlog.Descriptor) bool {
	return d.Refusal == "" && slices.ContainsFunc(d.Limits, func(l decisionlog.Limit) bool { return l.At != 0 || l.Seq != 0 })
}

// limitDifference compares the numbers of a limit.
func limitDifference(l *decisionlog.Limit, d *bucket.Decision) *Difference {
	if l.Degraded {
		return nil
	}
	for _, n := range [...]struct {
		what      string
		then, now int64
	}{
		{"remaining", l.Remaining, d.Remaining},
		{"retry_after_us", inMicros(int64(l.RetryAfter)), inMicros(int64(d.RetryAfter))},
		{"reset_after_us", inMicros(int64(l.ResetAfter)), inMicros(int64(d.ResetAfter))},
	} {
		if n.then != n.now {
			return &Difference{What: n.what, Recorded: fmt.Sprint(n.then), Replayed: fmt.Sprint(n.now)}
		}
	}
	return nil
}

// inMicros returns a span of nanoseconds in the form used in lines: -1 for bucket.Never,
// and 0 for bucket.Unknown.
func inMicros(ns int64) int64 {
	if ns == int64(bucket.Never) {
		return -1
	}
	return ns / 1000
}
