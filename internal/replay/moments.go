package replay

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Times of access logs and tables: the latest is that of a decision log.
const (
	maxMoment   = 1 << 52
	allowedTime = "a time such as 2026-11-23T00:00:00.25Z, or the seconds, milliseconds or microseconds since 1970, up to 2112"
)

// parseMoment reads a time in RFC 3339, or a number since 1970: of seconds, possibly with
// a fraction, of milliseconds from 1e11 on, or of microseconds from 1e14 on.
func parseMoment(text string) (us int64, err error) {
	whole, fraction, _ := strings.Cut(text, ".")
	if n, err := strconv.ParseInt(whole, 10, 64); err == nil {
		us, err = inUnit(n, fraction)
		if err != nil || us < 0 || us > maxMoment {
			return 0, badMoment(text)
		}
		return us, nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || at.Year() < 1970 || at.UnixMicro() < 0 || at.UnixMicro() > maxMoment {
		return 0, badMoment(text)
	}
	return at.UnixMicro(), nil
}

// inUnit returns the microseconds of a number whose unit is recognized by its size.
func inUnit(n int64, fraction string) (us int64, err error) {
	switch {
	case n >= 1e14:
		return n, nil
	case n >= 1e11:
		return n * 1000, nil
	}
	const digits = 6
	fraction = (fraction + "000000")[:digits]
	part, err := strconv.ParseUint(fraction, 10, 32)
	return n*1e6 + int64(part), err
}

func badMoment(text string) error {
	return fmt.Errorf("time: found %q; allowed: %s", short(text), allowedTime)
}

// short returns the beginning of a text for an error.
func short(text string) string {
	const maxBytes = 60
	return text[:min(maxBytes, len(text))]
}
