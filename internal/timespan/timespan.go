// Package timespan writes spans of time for people. It imports nothing of the
// project.
package timespan

import (
	"fmt"
	"strconv"
	"time"
)

// units are those that are shown, the largest first. Each is a whole number of the
// next.
var units = [...]struct {
	name   string
	length time.Duration
}{
	{"d", 24 * time.Hour},
	{"h", time.Hour},
	{"m", time.Minute},
	{"s", time.Second},
}

// Format returns a span as people read it: "11d 3h", "15m", "1m 30s", "5.2s",
// "350ms".
//
// It shows the largest of d, h, m and s that the span has, and the unit after it
// unless that is zero; below a minute seconds with at most one decimal, and below a
// second whole milliseconds. The rest is rounded up, so that whoever waits as long as it
// says has waited enough. A span below zero is "0s".
func Format(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
	case d <= 999*time.Millisecond:
		return fmt.Sprintf("%dms", roundUp(d, time.Millisecond)/time.Millisecond)
	case roundUp(d, 100*time.Millisecond) < time.Minute:
		tenths := roundUp(d, 100*time.Millisecond) / (100 * time.Millisecond)
		if tenths%10 == 0 {
			return fmt.Sprintf("%ds", tenths/10)
		}
		return fmt.Sprintf("%d.%ds", tenths/10, tenths%10)
	}
	// Rounding may carry into the unit above: 23h 59m 30s is a day.
	i := 0
	for roundUp(d, units[i+1].length) < units[i].length {
		i++
	}
	large, small := units[i], units[i+1]
	rounded := roundUp(d, small.length)
	text := fmt.Sprintf("%d%s", rounded/large.length, large.name)
	if rest := rounded % large.length / small.length; rest > 0 {
		text += fmt.Sprintf(" %d%s", rest, small.name)
	}
	return text
}

// Nearest returns the nearest span that can be shown with the two units of Format,
// below a minute with three digits, and below a second in whole milliseconds:
// "4m 19s", "2.59s", "350ms". exact is whether nothing was rounded. A span below zero
// is "0s".
func Nearest(d time.Duration) (text string, exact bool) {
	rounded := max(0, d).Round(shownStep(d))
	if time.Second <= rounded && rounded < time.Minute {
		text = strconv.FormatFloat(rounded.Seconds(), 'f', -1, 64) + "s"
	} else {
		text = Format(rounded)
	}
	return text, rounded == d
}

// shownStep returns the step in which Nearest shows a span.
func shownStep(d time.Duration) time.Duration {
	for i, u := range units[:len(units)-1] {
		if d >= u.length {
			return units[i+1].length
		}
	}
	switch {
	case d >= 10*time.Second:
		return 100 * time.Millisecond
	case d >= time.Second:
		return 10 * time.Millisecond
	}
	return time.Millisecond
}

// roundUp returns the first multiple of step that is not below d.
func roundUp(d, step time.Duration) time.Duration {
	rest := d % step
	if rest == 0 || d > 1<<63-1-step {
		return d - rest
	}
	return d - rest + step
}
