package replay

import (
	"fmt"
	"strings"
	"time"
)

// chart is a picture of a share of denials over time, in units of the picture.
type chart struct {
	Title string
	// Lines are before, if there is one, and after.
	Lines []chartLine
	// Grid are the horizontal lines, and Ticks the moments below them.
	Grid, Ticks []chartMark
}

type chartLine struct {
	Class string // "before" or "after"
	// Path is one of SVG, in pieces where nothing was asked between.
	Path string
	// Area is what is between the line and no denials.
	Area string
}

type chartMark struct {
	At   float64
	Text string
}

// The place of a chart: it is 720 wide and 190 high.
const (
	chartLeft, chartRight = 64.0, 708.0
	chartTop, chartBottom = 12.0, 160.0
)

const (
	// fewestBins is how many parts of time a chart has at least, if there are so many.
	fewestBins = 30
	// enoughAsked is from how many requests on a share says something.
	enoughAsked = 10
)

// tops are the shares at which a chart may end.
var tops = [...]float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1}

// chartOf draws a series.
func (t *timeline) chartOf(title string, all *series, hasBefore bool, last int64) chart {
	n := t.at(last) + 1
	length := int64(n) * t.width
	s, n, width := all.legible(n, (chartRight-chartLeft)/float64(n))
	c := chart{Title: title}
	top := topOf(&s, n)
	for i := range 3 {
		share := top * float64(i) / 2
		c.Grid = append(c.Grid, chartMark{chartY(share, top), percentOf(share)})
		at := t.start + length*int64(i)/2
		c.Ticks = append(c.Ticks, chartMark{chartLeft + (chartRight-chartLeft)*float64(i)/2, tickText(at, length)})
	}
	if hasBefore {
		c.Lines = append(c.Lines, s.line(before, n, width, top))
	}
	c.Lines = append(c.Lines, s.line(after, n, width, top))
	return c
}

// legible returns a series in bins that are as many times as wide as it takes for
// most of them to have enough requests, and how many and how wide these are: shares of
// two requests jump, and bins without any tear the line.
func (s *series) legible(n int, width float64) (wider series, _ int, _ float64) {
	wider = *s
	for n > fewestBins && wider.isThin(n) {
		wider.halve()
		n, width = (n+1)/2, 2*width
	}
	return wider, n, width
}

// isThin reports whether more than one in ten of the first n bins have too little.
func (s *series) isThin(n int) bool {
	thin := 0
	for i := range n {
		if max(s.asked[before][i], s.asked[after][i]) < enoughAsked {
			thin++
		}
	}
	return 10*thin > n
}

// tickText names a moment of a chart that is so long, in microseconds.
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
	most := 0.0
	for p := range s.asked {
		for i := range n {
			most = max(most, s.share(phase(p), i))
		}
	}
	for _, top := range tops {
		if most <= top {
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

// line draws the first n bins of a phase, each so wide. A piece is drawn as steps, so
// that a bin alone shows as well.
func (s *series) line(p phase, n int, width, top float64) chartLine {
	var path, area strings.Builder
	for i := 0; i < n; i++ {
		if s.asked[p][i] == 0 {
			continue
		}
		first := i
		for ; i < n && s.asked[p][i] > 0; i++ {
			command := "L"
			if i == first {
				command = "M"
				fmt.Fprintf(&area, "M%.1f %.1f", chartLeft+width*float64(i), chartBottom)
			}
			x, y := chartLeft+width*float64(i), chartY(s.share(p, i), top)
			end := min(x+width, chartRight) // the last bin may be longer than the log
			fmt.Fprintf(&path, "%s%.1f %.1fH%.1f", command, x, y, end)
			fmt.Fprintf(&area, "L%.1f %.1fH%.1f", x, y, end)
		}
		fmt.Fprintf(&area, "V%.1fZ", chartBottom)
	}
	return chartLine{[...]string{"before", "after"}[p], path.String(), area.String()}
}
