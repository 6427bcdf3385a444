package script

import (
	"embed"
	"encoding/binary"
	"fmt"
	"io/fs"
	"math"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

//go:embed lua
var files embed.FS

var (
	// Source is the script.
	Source = source()
	// SHA is the hash by which Redis knows the script.
	SHA = redis.NewScript(Source).Hash()
)

// source assembles the script, in the order given in lua/state.lua.
func source() string {
	names, err := fs.Glob(files, "lua/*.lua")
	if err != nil {
		panic(err) // the pattern is above
	}
	const first, last = "lua/state.lua", "lua/main.lua"
	var algorithms, all strings.Builder
	for _, name := range names {
		if name != first && name != last {
			algorithms.WriteString(read(name))
		}
	}
	all.WriteString(read(first))
	for _, a := range bucket.Algorithms() {
		fmt.Fprintf(&all, "local %s = %d\n", strings.ToUpper(a.String()), a)
	}
	fmt.Fprintf(&all, "local CALENDAR = %d\nlocal MAX_PORTIONS = %d\n", byCalendar, bucket.MaxPortions)
	all.WriteString(algorithms.String())
	all.WriteString(read(last))
	return all.String()
}

func read(name string) string {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	return string(text) + "\n"
}

// StateFormat is the version of the values of limits' keys. It grows when daemons of
// the previous version can no longer read them.
const StateFormat = 1

// Formats are the state formats that this version reads.
func Formats() []int { return []int{StateFormat} }

// byCalendar is the script's number for a fixed_window with a calendar.
const byCalendar = -1

// appendLimitByCalendar is appendLimit for one with a calendar. at is a moment in the first
// of its two windows, in microseconds since the Unix epoch.
func appendLimitByCalendar(dst []byte, l *bucket.Limit, at int64) []byte {
	b, _ := l.Borders(at)
	return appendNumbers(dst, byCalendar, int64(l.Charging()), l.Capacity, b[0], b[1], b[2], l.Calendar.Moved, blockOf(l))
}

// appendLimit appends a limit's algorithm, or 0 if it always denies and looks at no
// state, and its other seven numbers.
func appendLimit(dst []byte, l *bucket.Limit) []byte {
	algorithm := int64(l.Algorithm)
	if l.Requests == 0 && !l.Algorithm.HasHolders() {
		algorithm = 0
	}
	charging := int64(l.Charging())
	if l.Leeway > 0 { // then it is ChargesAdmitted
		charging = -l.Leeway
	}
	dst = appendNumbers(dst, algorithm, charging, l.Capacity)
	numbers := l.Numbers()
	return appendNumbers(appendNumbers(dst, numbers[:]...), blockOf(l))
}

// blockOf returns how long the limit blocks, in microseconds. One that always denies starts
// no pauses.
func blockOf(l *bucket.Limit) int64 {
	if l.Requests == 0 {
		return 0
	}
	return l.BlockFor.Microseconds()
}

// appendNumbers appends whole numbers under 2^53 as little-endian doubles, which the
// script reads exactly, in one step each.
func appendNumbers(dst []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(float64(n)))
	}
	return dst
}
