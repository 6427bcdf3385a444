package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/integration/picture"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// panel is the part of a picture about one limit.
type panel struct {
	spec        bucket.Spec
	title, note string
	curves      curves
	// showsSent is whether there is a second curve, of what is sent after a wait.
	showsSent bool
	// showsBorders is whether the borders of the windows are marked.
	showsBorders bool
}

// plotted are the panels, row by row.
var plotted = []panel{
	{title: "token_bucket, gcra", note: "60 at once, then one a second", spec: aMinute(bucket.TokenBucket)},
	{title: "leaky_bucket", note: "the same, then spaced by waiting", spec: aMinute(bucket.LeakyBucket), showsSent: true},
	{title: "fixed_window", note: "60 in each minute of the clock", spec: aMinute(bucket.FixedWindow), showsBorders: true},
	{title: "sliding_window", note: "60 in any minute; slots of 6 s", spec: aMinute(bucket.SlidingWindow)},
	{title: "sliding_log", note: "60 in any minute, exact", spec: aMinute(bucket.SlidingLog)},
	{title: "concurrency", note: "60 at once, each running for 40 s", spec: aMinute(bucket.Concurrency)},
}

func aMinute(a bucket.Algorithm) bucket.Spec {
	s := bucket.Spec{Algorithm: a, Requests: capacity, Period: time.Minute}
	if a == bucket.SlidingWindow {
		s.SubWindows = 10
	}
	return s
}

// theme has the colours of curves beside those of all pictures.
type theme struct {
	picture.Theme
	line, area, ask string
}

var themes = []theme{
	{Theme: picture.Light, line: "#0969da", area: "#ddf4ff", ask: "#8c959f"},
	{Theme: picture.Dark, line: "#4493f8", area: "#121d2f", ask: "#656c76"},
}

// The layout, in pixels. A curve's are tenths of a pixel, so that they are whole numbers.
const (
	width, height = 800, 548
	columns       = 3
	left, top     = 46, 136
	plotWidth     = 210 // 1.4 for each second
	plotHeight    = 144 // 0.6 for each request
	columnStep    = plotWidth + 44
	rowStep       = 246

	tenthsASecond  = 10 * plotWidth / int(length/time.Second)
	maxRequests    = 4 * capacity
	tenthsARequest = 10 * plotHeight / maxRequests
)

type canvas struct{ picture.Canvas }

// begin begins a picture of lines over grids.
func (c *canvas) begin(t theme, height int, title string) {
	c.Add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title">`, width, height)
	c.Add(`  <title id="title">%s</title>`, title)
	c.Add(`  <style>`)
	c.Add(`    text { font-family: "Segoe UI", "Helvetica Neue", Helvetica, Arial, sans-serif; font-size: 12px; fill: %s; }`, t.Faint)
	c.Add(`    .page { fill: %s; }`, t.Page)
	c.Add(`    .name { font-size: 14px; font-weight: 600; fill: %s; }`, t.Ink)
	c.Add(`    .end { text-anchor: end; }`)
	c.Add(`    .middle { text-anchor: middle; }`)
	c.Add(`    .grid { stroke: %s; fill: none; }`, t.Grid)
	c.Add(`    .asked { stroke: %s; fill: none; stroke-width: 1.5; stroke-dasharray: 5 4; }`, t.ask)
	c.Add(`    .line { stroke: %s; fill: none; stroke-width: 2.5; stroke-linejoin: round; }`, t.line)
	c.Add(`  </style>`)
	c.Add(`  <rect class="page" width="%d" height="%d"/>`, width, height)
}

// grid draws a line across a panel, with a label if that is not empty.
func (c *canvas) grid(x, y, width int, label string) {
	c.Add(`  <path class="grid" d="M%d %dh%d"/>`, x, y, width)
	if label != "" {
		c.Add(`  <text class="end" x="%d" y="%d">%s</text>`, x-6, y+4, label)
	}
}

// draw returns a picture of the panels.
func draw(t theme, panels []panel) string {
	c := new(canvas)
	c.Add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title">`, width, height)
	c.Add(`  <title id="title">Requests that each algorithm admits when 5 a second come for 150 seconds and the limit is 60 a minute, or for concurrency 60 at once.</title>`)
	c.Add(`  <style>`)
	c.Add(`    text { font-family: "Segoe UI", "Helvetica Neue", Helvetica, Arial, sans-serif; font-size: 12px; fill: %s; }`, t.Faint)
	c.Add(`    .page { fill: %s; }`, t.Page)
	c.Add(`    .head { font-size: 16px; font-weight: 600; fill: %s; }`, t.Ink)
	c.Add(`    .name { font-size: 14px; font-weight: 600; fill: %s; }`, t.Ink)
	c.Add(`    .end { text-anchor: end; }`)
	c.Add(`    .middle { text-anchor: middle; }`)
	c.Add(`    .strong { fill: %s; }`, t.Ink)
	c.Add(`    .grid { stroke: %s; fill: none; }`, t.Grid)
	c.Add(`    .border { stroke: %s; fill: none; stroke-dasharray: 3 3; }`, t.ask)
	c.Add(`    .asked { stroke: %s; fill: none; stroke-width: 1.5; stroke-dasharray: 5 4; }`, t.ask)
	c.Add(`    .line { stroke: %s; fill: none; stroke-width: 2.5; stroke-linejoin: round; }`, t.line)
	c.Add(`    .sent { stroke: %s; fill: none; stroke-width: 1.5; }`, t.line)
	c.Add(`    .area { fill: %s; }`, t.area)
	c.Add(`  </style>`)
	c.Add(`  <rect class="page" width="%d" height="%d"/>`, width, height)
	c.Add(`  <text class="head" x="%d" y="32">Limit: %d a minute. Demand: %d a second for %d seconds.</text>`, left, capacity, time.Second/every, length/time.Second)
	c.Add(`  <text x="%d" y="54">Requests admitted since the first one, which comes %d s before a full minute of the clock.</text>`, left, beforeBorder/time.Second)
	for i, p := range panels {
		c.panel(p, left+i%columns*columnStep, top+i/columns*rowStep, i%columns == 0)
	}
	c.Add(`</svg>`)
	return c.String()
}

// panel draws one, whose curves begin at x and end above y + plotHeight.
func (c *canvas) panel(p panel, x, y int, showsNumbers bool) {
	c.Add("\n  <!-- %s -->", p.title)
	c.Add(`  <text class="name" x="%d" y="%d">%s</text>`, x, y-32, p.title)
	c.Add(`  <text x="%d" y="%d">%s</text>`, x, y-13, p.note)
	c.Add(`  <path class="area" d="%sV%dH%dz"/>`, path(p.curves.admitted, x, y), y+plotHeight, x)
	bottom := y + plotHeight
	for n := 0; n <= maxRequests; n += capacity {
		at := bottom - n*tenthsARequest/10
		c.Add(`  <path class="grid" d="M%d %dh%d"/>`, x, at, plotWidth)
		if showsNumbers {
			c.Add(`  <text class="end" x="%d" y="%d">%d</text>`, x-6, at+4, n)
		}
	}
	for n, label := range []string{"0", "1 min", "2 min"} {
		c.Add(`  <text class="middle" x="%d" y="%d">%s</text>`, x+n*60*tenthsASecond/10, bottom+16, label)
	}
	if p.showsBorders {
		for at := beforeBorder; at < length; at += time.Minute {
			curve := bottom - before(p.curves.admitted, at)*tenthsARequest/10
			c.Add(`  <path class="border" d="M%d %dV%d"/>`, x+int(at/time.Second)*tenthsASecond/10, y, curve)
		}
		c.Add(`  <text x="%d" y="%d">new window</text>`, x+int((beforeBorder+time.Minute)/time.Second)*tenthsASecond/10+5, y+14)
	}
	top := maxRequests * int(every) / int(time.Second) // seconds until so many were asked for
	c.Add(`  <path class="asked" d="M%d %dL%d %d"/>`, x, bottom, x+top*tenthsASecond/10, y)
	c.Add(`  <path class="line" d="%s"/>`, path(p.curves.admitted, x, y))
	most := fmt.Sprintf("at most %d in any minute", mostInAMinute(p.curves.admitted))
	if p.showsSent {
		c.Add(`  <path class="sent" d="%s"/>`, path(p.curves.sent, x, y))
		c.Add(`  <text class="end" x="%d" y="%d">admitted</text>`, x+118, y+36)
		c.Add(`  <text x="%d" y="%d">sent</text>`, x+150, y+92)
		most = fmt.Sprintf("%d sent in any minute", mostInAMinute(p.curves.sent))
	} else if showsNumbers && !p.showsBorders {
		c.Add(`  <text x="%d" y="%d">asked for</text>`, x+top*tenthsASecond/10+2, y+14)
	}
	c.Add(`  <text class="end strong" x="%d" y="%d">%s</text>`, x+plotWidth-6, bottom-10, most)
}

// path returns a curve's points at whole seconds, without those amid a straight line.
func path(curve []time.Duration, x, y int) string {
	var b strings.Builder
	seconds := int(length / time.Second)
	at := func(s int) int { return before(curve, time.Duration(s)*time.Second) }
	for s := range seconds + 1 {
		if s > 0 && s < seconds && at(s)-at(s-1) == at(s+1)-at(s) {
			continue
		}
		letter := "L"
		if s == 0 {
			letter = "M"
		}
		fmt.Fprintf(&b, "%s%s %s", letter, tenths(10*x+s*tenthsASecond), tenths(10*(y+plotHeight)-at(s)*tenthsARequest))
	}
	return b.String()
}

// tenths returns a number of tenths as a decimal fraction.
func tenths(n int) string {
	if n%10 == 0 {
		return fmt.Sprint(n / 10)
	}
	return fmt.Sprintf("%d.%d", n/10, n%10)
}
