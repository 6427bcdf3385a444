package words

import (
	"strconv"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
)

// refill says how fast a bucket refills, in whichever words say most: "one every 6s",
// "one a minute", "10 a second", "100 a minute". What is rounded, to three digits or two
// units of time, begins with "about".
func refill(l *bucket.Limit) string {
	perSecond, period := l.Requests*time.Second.Milliseconds(), l.Period.Milliseconds()
	switch {
	case perSecond > period && perSecond%period == 0:
		return Thousands(perSecond/period) + " a second"
	case perSecond <= period || l.Requests == 1:
		return interval(l)
	case l.Period <= time.Minute:
		return Thousands(l.Requests) + " " + PerPeriod(l.Period)
	}
	text, exact := threeDigits(perSecond, period)
	return unlessExact(exact) + text + " a second"
}

// interval says how far apart the tokens of a slow bucket are.
func interval(l *bucket.Limit) string {
	d := l.Period / time.Duration(l.Requests)
	whole := d*time.Duration(l.Requests) == l.Period
	if name := namedPeriod(d); whole && name != "" {
		return "one " + name
	}
	text, exact := timespan.Nearest(d)
	return unlessExact(whole && exact) + "one every " + text
}

// unlessExact marks what is rounded.
func unlessExact(exact bool) string {
	if exact {
		return ""
	}
	return "about "
}

// threeDigits returns a / b, which is at least 1, with three digits or all digits before
// the point, and whether that is exact.
func threeDigits(a, b int64) (text string, exact bool) {
	for _, scale := range [...]int64{100, 10} {
		if a/b >= 1000 {
			break // and a*scale may overflow
		}
		if scaled := (a*scale + b/2) / b; scaled < 1000 {
			return strconv.FormatFloat(float64(scaled)/float64(scale), 'f', -1, 64), a*scale%b == 0
		}
	}
	return Thousands(a/b + (a%b+b/2)/b), a%b == 0
}
