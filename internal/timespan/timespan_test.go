package timespan_test

import (
	"math"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/timespan"
)

func TestFormat(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, c := range []struct {
		span time.Duration
		want string
	}{
		{-time.Hour, "0s"},
		{0, "0s"},
		{1, "1ms"},
		{350 * time.Millisecond, "350ms"},
		{349*time.Millisecond + 1, "350ms"},
		{999 * time.Millisecond, "999ms"},
		{999*time.Millisecond + 1, "1s"},
		{time.Second, "1s"},
		{5200 * time.Millisecond, "5.2s"},
		{5101 * time.Millisecond, "5.2s"},
		{5901 * time.Millisecond, "6s"},
		{59900 * time.Millisecond, "59.9s"},
		{59901 * time.Millisecond, "1m"},
		{time.Minute, "1m"},
		{time.Minute + 1, "1m 1s"},
		{90 * time.Second, "1m 30s"},
		{15 * time.Minute, "15m"},
		{59*time.Minute + 59*time.Second + 1, "1h"},
		{time.Hour + time.Second, "1h 1m"},
		{90 * time.Minute, "1h 30m"},
		{day - 30*time.Second, "1d"},
		{260*time.Hour + 41*time.Minute + 35*time.Second, "10d 21h"},
		{267 * time.Hour, "11d 3h"},
		{365 * day, "365d"},
		{math.MaxInt64, "106751d 23h"},
	} {
		t.Run(c.want, func(t *testing.T) {
			t.Parallel()
			if got := timespan.Format(c.span); got != c.want {
				t.Errorf("%d ns is %q, want %q", c.span, got, c.want)
			}
		})
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		span  time.Duration
		want  string
		exact bool
	}{
		{-time.Hour, "0s", false},
		{0, "0s", true},
		{350 * time.Millisecond, "350ms", true},
		{999*time.Millisecond + 700*time.Microsecond, "1s", false},
		{2592 * time.Millisecond, "2.59s", false},
		{2500 * time.Millisecond, "2.5s", true},
		{9996 * time.Millisecond, "10s", false},
		{12345 * time.Millisecond, "12.3s", false},
		{59960 * time.Millisecond, "1m", false},
		{90 * time.Second, "1m 30s", true},
		{259200 * time.Millisecond, "4m 19s", false},
		{time.Hour - time.Millisecond, "1h", false},
		{25*time.Hour + 29*time.Minute, "1d 1h", false},
		{36 * time.Hour, "1d 12h", true},
		{366 * 24 * time.Hour, "366d", true},
	} {
		t.Run(c.want, func(t *testing.T) {
			t.Parallel()
			if got, exact := timespan.Nearest(c.span); got != c.want || exact != c.exact {
				t.Errorf("%d ns is %q, exactly %v; want %q, %v", c.span, got, exact, c.want, c.exact)
			}
		})
	}
}
