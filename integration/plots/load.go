package main

import (
	"fmt"
	"math"
	"strings"
)

// measured is a latency at an offered load, in us, of the daemon and of a gRPC server that
// decides nothing ("bare tuned").
type measured struct {
	perSecond                    int
	p50, p99, emptyP50, emptyP99 float64
}

// loads are medians of eight slices, measured while no other program took 1 % of the
// processors, for each rate by
//
//	make bench BENCH="-run '^(memory|redis)-256$' -starts 2 -rounds 4 -slice 500ms -rate 1000"
var loads = []struct {
	title string
	at    []measured
}{
	{"In memory", []measured{
		{1000, 418, 963, 377, 995},
		{2000, 416, 1343, 381, 1026},
		{5000, 506, 2884, 480, 2556},
		{10000, 991, 11141, 750, 5276},
		{15000, 1999, 14483, 1087, 11862},
		{20000, 3211, 25035, 4628, 27263},
		{25000, 24904, 42992, 7078, 28705},
	}},
	{"On Redis", []measured{
		{1000, 717, 1540, 348, 782},
		{2000, 803, 3293, 344, 1090},
		{5000, 1606, 5308, 457, 1565},
		{10000, 2507, 16155, 770, 4858},
		{15000, 9322, 29753, 1409, 12714},
		{20000, 42729, 73400, 3441, 19399},
		{25000, 68813, 98566, 6193, 29884},
	}},
}

// The layout of the picture of loads, in pixels.
const (
	loadHeight    = 300
	loadTop       = 70
	loadPlot      = 180 // 60 for each power of ten, from 0.1 ms to 100 ms
	loadWidth     = 325 // 13 for each 1,000 a second
	loadStep      = 399
	loadMaxDemand = 25_000
)

// drawLoads returns a picture of latency against load.
func drawLoads(t theme) string {
	c := new(canvas)
	c.begin(t, loadHeight, "Latency at 1,000 to 25,000 requests a second, median and 99th percentile, in memory and on Redis, beside a gRPC server that decides nothing.")
	for i, l := range loads {
		x, bottom := left+6+i*loadStep, loadTop+loadPlot
		c.Add("\n  <!-- %s -->", l.title)
		c.Add(`  <text class="name" x="%d" y="24">%s</text>`, x, l.title)
		c.Add(`  <path class="line" d="M%d 44h16"/>`, x)
		c.Add(`  <text x="%d" y="48">ratelimitd</text>`, x+22)
		c.Add(`  <path class="asked" d="M%d 44h16"/>`, x+104)
		c.Add(`  <text x="%d" y="48">gRPC without deciding</text>`, x+126)
		for n, label := range []string{"0.1 ms", "1 ms", "10 ms", "100 ms"} {
			c.grid(x, bottom-n*loadPlot/3, loadWidth, label)
		}
		for n := 0; n <= loadMaxDemand; n += 5000 {
			c.Add(`  <text class="middle" x="%d" y="%d">%d</text>`, x+n*loadWidth/loadMaxDemand, bottom+16, n)
		}
		c.Add(`  <text class="middle" x="%d" y="%d">requests a second</text>`, x+loadWidth/2, bottom+36)
		c.Add(`  <path class="asked" d="%s"/>`, latencies(l.at, x, func(m measured) float64 { return m.emptyP50 }))
		c.Add(`  <path class="asked" d="%s"/>`, latencies(l.at, x, func(m measured) float64 { return m.emptyP99 }))
		c.Add(`  <path class="line" d="%s"/>`, latencies(l.at, x, func(m measured) float64 { return m.p50 }))
		c.Add(`  <path class="line" d="%s"/>`, latencies(l.at, x, func(m measured) float64 { return m.p99 }))
		second := l.at[2]
		at := x + second.perSecond*loadWidth/loadMaxDemand
		c.Add(`  <text class="end" x="%d" y="%d">p99</text>`, at-4, latencyY(second.p99)-6)
		c.Add(`  <text x="%d" y="%d">p50</text>`, at, latencyY(second.p50)+16)
	}
	c.Add(`</svg>`)
	return c.String()
}

// latencyY returns where a latency in us lies.
func latencyY(us float64) int {
	return loadTop + loadPlot - int(math.Round(math.Log10(us/100)*loadPlot/3))
}

// latencies returns the path of one of the latencies.
func latencies(at []measured, x int, of func(measured) float64) string {
	var b strings.Builder
	letter := "M"
	for _, m := range at {
		fmt.Fprintf(&b, "%s%d %d", letter, x+m.perSecond*loadWidth/loadMaxDemand, latencyY(of(m)))
		letter = "L"
	}
	return b.String()
}
