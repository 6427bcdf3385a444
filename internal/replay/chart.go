package replay

import (
	"fmt"
	"strings"
	"time"
)

// chart is a graph of a share of denials over time, in units of the graph.
type chart struct {
	// Lines are before, if there is one, and after.
	Lines []chartLine
	// Grid are the horizontal lines, and Ticks the times below them.
	Grid, Ticks []chartMark
}

type chartLine struct {
	Class string // "before" or "after"
	// Path is an SVG path.
	Path string
	// Area is the area between the line and no denials.
	Area string
}

type chartMark struct {
	At   float64
	Text string
}

// The area of a chart, which is 720 wide and 190 high.
const (
	chartLeft, chartRight = 64.0, 708.0
	chartTop, chartBottom = 12.0, 160.0
)

// tops are the shares at which a chart may end.
var tops = [...]float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1}

// chart draws the shares until a time.
func (t *timeline) chart(hasBefore bool, last int64) *chart {
	n := t.at(last) + 1
	length := int64(n) * t.width
	s, width := &t.all, (chartRight-chartLeft)/float64(n)
	c := new(chart)
	top := topOf(s, n)
	for i := range 3 {
		share := top * float64(i) / 2
		c.Grid = append(c.Grid, chartMark{chartY(share, top), fmt.Sprintf("%.6g%%", 100*share)})
		at := t.start + length*int64(i)/2
		c.Ticks = append(c.Ticks, chartMark{chartLeft + (chartRight-chartLeft)*float64(i)/2, tickText(at, length)})
	}
	if hasBefore {
		c.Lines = append(c.Lines, s.line(before, n, width, top))
	}
	c.Lines = append(c.Lines, s.line(after, n, width, top))
	return c
}

// tickText labels a time in a chart of the given length, in microseconds.
func tickText(at, length int64) string {
	switch span := time.Duration(length) * time.Microsecond; {
	case span < 10*time.Second:
		return moment(at).Format("15:04:05.000")
	case span < 24*time.Hour:
		return moment(at).Format("15:04:05")
	}
	return moment(at).Format("Jan 2, 15:04")
}

func topOf(s *series, n int) float64 {
	maxShare := 0.0
	for p := range s.asked {
		for i := range n {
			maxShare = max(maxShare, s.share(phase(p), i))
		}
	}
	for _, top := range tops {
		if maxShare <= top {
			return top
		}
	}
	return 1
}

func (s *series) share(p phase, bin int) float64 {
	if s.asked[p][bin] == 0 {
		return 0
	}
	return float64(s.denied[p][bin]) / float64(s.asked[p][bin])
}

func chartY(share, top float64) float64 { return chartBottom - (chartBottom-chartTop)*share/top }

// line draws the first n bins of a phase, each with the given width, as steps. Bins in which
// nothing was asked are left out.
func (s *series) line(p phase, n int, width, top float64) chartLine {
	var path, area strings.Builder
	for i := range n {
		if s.asked[p][i] == 0 {
			continue
		}
		x, y := chartLeft+width*float64(i), chartY(s.share(p, i), top)
		command := "L"
		if path.Len() == 0 {
			command = "M"
			fmt.Fprintf(&area, "M%.1f %.1f", x, chartBottom)
		}
		end := min(x+width, chartRight) // the last bin may extend beyond the log
		fmt.Fprintf(&path, "%s%.1f %.1fH%.1f", command, x, y, end)
		fmt.Fprintf(&area, "L%.1f %.1fH%.1f", x, y, end)
	}
	fmt.Fprintf(&area, "V%.1fZ", chartBottom)
	return chartLine{Class: [...]string{"before", "after"}[p], Path: path.String(), Area: area.String()}
}
