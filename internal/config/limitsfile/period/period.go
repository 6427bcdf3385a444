// Package period reads and writes the periods of limits as they appear in files and to
// people. It imports bucket, for the longest one, and yamlfile.
package period

import (
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// Pattern matches what Parse accepts, and too short, too long and too fine periods.
const Pattern = `^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$`

// Allowed says what Parse accepts.
const Allowed = `1ms to 366d in whole milliseconds, such as "90s", "1h30m" or "1.5d" (ms, s, m, h, d)`

// periodUnits are in milliseconds. "ms" stands before "m", its prefix.
var periodUnits = [...]struct {
	name   string
	millis int64
}{
	{"ms", 1},
	{"s", 1000},
	{"m", 60 * 1000},
	{"h", 60 * 60 * 1000},
	{"d", 24 * 60 * 60 * 1000},
}

// Format writes a period of whole milliseconds as Parse reads it, in the largest unit
// that divides it.
func Format(d time.Duration) string {
	millis, unit := d.Milliseconds(), periodUnits[0]
	for _, u := range periodUnits {
		if millis%u.millis == 0 { // which all before it divide
			unit = u
		}
	}
	return fmt.Sprintf("%d%s", millis/unit.millis, unit.name)
}

// Parse reads a sequence of numbers with units, exactly: "1.5h" is 90 minutes, "0.5ms" an
// error. The error says what was found.
func Parse(s string) (time.Duration, error) {
	const maxLength = 64
	if len(s) > maxLength {
		return 0, fmt.Errorf("%s, which is too long", yamlfile.Quote(s))
	}
	if s == "" {
		return 0, fmt.Errorf("an empty text")
	}
	sum := new(big.Rat)
	for rest := s; rest != ""; {
		number := leadingNumber(rest)
		if number == "" {
			return 0, fmt.Errorf("%s", yamlfile.Quote(s))
		}
		rest = rest[len(number):]
		if rest == "" && number == s {
			return 0, fmt.Errorf("%s without a unit (%q would be seconds)", s, s+"s")
		}
		name, millis := leadingUnit(rest)
		if name == "" {
			return 0, fmt.Errorf("%s, where one of ms, s, m, h and d must follow %q", yamlfile.Quote(s), number)
		}
		rest = rest[len(name):]
		part, _ := new(big.Rat).SetString(number)
		sum.Add(sum, part.Mul(part, new(big.Rat).SetInt64(millis)))
	}
	if !sum.IsInt() {
		return 0, fmt.Errorf("%s, which is not in whole milliseconds", yamlfile.Quote(s))
	}
	millis := sum.Num()
	if millis.Sign() == 0 || millis.Cmp(big.NewInt(bucket.MaxPeriod.Milliseconds())) > 0 {
		return 0, fmt.Errorf("%s", yamlfile.Quote(s))
	}
	return time.Duration(millis.Int64()) * time.Millisecond, nil
}

// leadingNumber returns the digits, or digits.digits, at the beginning of s.
func leadingNumber(s string) string {
	digits := func(from int) int {
		for from < len(s) && s[from] >= '0' && s[from] <= '9' {
			from++
		}
		return from
	}
	n := digits(0)
	if n > 0 && n < len(s) && s[n] == '.' {
		if m := digits(n + 1); m > n+1 {
			n = m
		}
	}
	return s[:n]
}

func leadingUnit(s string) (name string, millis int64) {
	for _, u := range periodUnits {
		if strings.HasPrefix(s, u.name) {
			return u.name, u.millis
		}
	}
	return "", 0
}

// unitNames are envoyproxy/ratelimit's units, which it writes in any case.
var unitNames = [...]struct {
	name   string
	period time.Duration
}{
	{"second", time.Second},
	{"minute", time.Minute},
	{"hour", time.Hour},
	{"day", 24 * time.Hour},
	{"week", 7 * 24 * time.Hour},
	{"month", 30 * 24 * time.Hour},
	{"year", 365 * 24 * time.Hour},
}

// ParseUnit reads one of envoyproxy/ratelimit's units, in any case.
func ParseUnit(s string) (time.Duration, bool) {
	for _, u := range unitNames {
		if strings.EqualFold(s, u.name) {
			return u.period, true
		}
	}
	return 0, false
}

// AllowedUnits says what ParseUnit accepts.
const AllowedUnits = "second, minute, hour, day, week, month, year"

// Units returns the names of these units.
func Units() []string {
	names := make([]string, len(unitNames))
	for i, u := range unitNames {
		names[i] = u.name
	}
	return names
}
