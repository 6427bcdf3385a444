package words

import (
	"fmt"
	"strconv"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
)

// Limit describes in plain words how much a limit allows: "20 at once, then one every 6s"
// for a bucket, "1,000 requests a day" for a window, "20 in flight, each free after 1m of
// silence" for a concurrency. It adds the lease and the failure mode, if the limit has them.
func Limit(l *bucket.Limit) string {
	text := Numbers(l) + Enforcement(l)
	if l.Lease != 0 {
		text += "; " + Lease(l)
	}
	if l.OnStoreFailure != bucket.FailureDefault {
		text += "; on store failure: " + l.OnStoreFailure.String()
	}
	return text
}

// Lease says what the lease of a limit allows, and what it costs: "decided in the caller for
// up to 100ms; bursts of 900 instead of 1,000". It is "no lease" for a limit without one.
func Lease(l *bucket.Limit) string {
	text := timespan.Format(l.Lease)
	switch {
	case l.Lease == 0:
		return "no lease"
	case l.Algorithm.IsBucket():
		return fmt.Sprintf("decided in the caller for up to %s; bursts of %s instead of %s", text, Thousands(l.Capacity), Thousands(l.Burst))
	case l.Algorithm == bucket.FixedWindow:
		return "decided in the caller for up to " + text
	}
	return fmt.Sprintf("decided in the caller for up to %s; each request counts %s longer", text, text)
}

// Enforcement says which subjects a limit does not deny: "; shadow", or "; enforced for
// 10% of the subjects". It is empty for a limit that denies all.
func Enforcement(l *bucket.Limit) string {
	switch l.Unenforced {
	case 0:
		return ""
	case bucket.AllSubjects:
		return "; shadow"
	}
	return "; enforced for " + EnforcedShare(l) + " of the subjects"
}

// EnforcedShare returns the share of the subjects for which a limit is enforced, as
// written in a limits file.
func EnforcedShare(l *bucket.Limit) string {
	return strconv.FormatFloat(float64(bucket.AllSubjects-l.Unenforced)/(bucket.AllSubjects/100), 'f', -1, 64) + "%"
}

// Numbers is Limit without the lease, the failure mode and Enforcement.
func Numbers(l *bucket.Limit) string {
	if l.Requests == 0 {
		return "denies always"
	}
	var text string
	switch {
	case l.Algorithm.IsBucket():
		text = Thousands(l.Burst) + " at once, then " + refill(l)
	case l.Algorithm.HasHolders():
		text = fmt.Sprintf("%s in flight, each free after %s of silence", Thousands(l.Requests), timespan.Format(l.Period))
	case l.Algorithm == bucket.SlidingWindow || l.Algorithm == bucket.SlidingLog:
		text = Requests(l) + " in any " + Span(l.Period)
	case l.Calendar != (bucket.Calendar{}):
		text = Requests(l) + " a " + Calendar(l.Calendar)
	default:
		text = Requests(l) + " " + PerPeriod(l.Period)
	}
	if l.Algorithm == bucket.SlidingWindow && l.SubWindows != bucket.DefaultSubWindows {
		text += fmt.Sprintf(", in %s", yamlfile.Plural(l.SubWindows, "sub-window"))
	}
	if l.Postpaid == bucket.PostpaidAlways {
		text += ", charged afterwards"
	}
	if l.BlockFor != 0 {
		text += ", and who goes over is paused for " + timespan.Format(l.BlockFor)
	}
	return text
}

// Requests returns "1 request" or "1,000 requests".
func Requests(l *bucket.Limit) string {
	if l.Requests == 1 {
		return "1 request"
	}
	return Thousands(l.Requests) + " requests"
}
