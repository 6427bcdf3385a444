package replay

import "time"

// bins is the maximum number of time bins in a chart: few, since a share of few requests
// says little.
const bins = 60

// timeline collects denials over time. Its bins double in length when time goes beyond
// them, so the memory does not depend on the length of a log.
type timeline struct {
	start int64 // of the first bin, in microseconds since the Unix epoch
	width int64 // of a bin in microseconds
	all   series
}

// series counts what was asked and denied in each bin, before and after.
type series struct{ asked, denied [2][bins]uint64 }

// at returns the bin of a time. Times before the first are in the first bin.
func (t *timeline) at(us int64) int {
	if t.width == 0 {
		t.start, t.width = us, int64(time.Millisecond/time.Microsecond)
	}
	for us-t.start >= bins*t.width {
		t.all.halve()
		t.width *= 2
	}
	return int(max(0, us-t.start) / t.width)
}

// halve merges every two bins into one.
func (s *series) halve() {
	for p := range s.asked {
		for _, counts := range []*[bins]uint64{&s.asked[p], &s.denied[p]} {
			for i := range bins / 2 {
				counts[i] = counts[2*i] + counts[2*i+1]
			}
			clear(counts[bins/2:])
		}
	}
}

func (s *series) add(p phase, bin int, denied bool) {
	s.asked[p][bin]++
	if denied {
		s.denied[p][bin]++
	}
}
