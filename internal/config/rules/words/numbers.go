package words

import (
	"strconv"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// Thousands returns a number with thousands separators: "1,000,000".
func Thousands(n int64) string {
	text := strconv.FormatInt(n, 10)
	first := 0
	if n < 0 {
		first = 1
	}
	for i := len(text) - 3; i > first; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// wordUnits are the spans of time that have a name, longest first.
var wordUnits = [...]struct {
	length time.Duration
	name   string
}{
	{365 * 24 * time.Hour, "year"},
	{7 * 24 * time.Hour, "week"},
	{24 * time.Hour, "day"},
	{time.Hour, "hour"},
	{time.Minute, "minute"},
	{time.Second, "second"},
	{time.Millisecond, "millisecond"},
}

// PerPeriod returns "a minute" or "every 90 seconds".
func PerPeriod(period time.Duration) string {
	if name := namedPeriod(period); name != "" {
		return name
	}
	return "every " + Span(period)
}

// namedPeriod returns "a minute", or "" for a period without a name.
func namedPeriod(period time.Duration) string {
	for _, u := range wordUnits {
		switch {
		case period != u.length:
		case u.name == "hour":
			return "an hour"
		default:
			return "a " + u.name
		}
	}
	return ""
}

// Span returns "minute" or "90 seconds": in the largest unit that divides the period.
func Span(period time.Duration) string {
	for _, u := range wordUnits {
		n := period / u.length
		switch {
		case period%u.length != 0:
		case n == 1:
			return u.name
		case u.name != "week" && u.name != "year":
			return yamlfile.Plural(int64(n), u.name)
		}
	}
	return period.String()
}
