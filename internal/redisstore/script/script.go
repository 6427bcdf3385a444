package script

import (
	_ "embed" // the script's files
	"encoding/binary"
	"math"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

var (
	//go:embed lua/state.lua
	luaState string
	//go:embed lua/token_bucket.lua
	luaTokenBucket string
	//go:embed lua/fixed_window.lua
	luaFixedWindow string
	//go:embed lua/sliding_window.lua
	luaSlidingWindow string
	//go:embed lua/main.lua
	luaMain string

	// Source is the script.
	Source = strings.Join([]string{luaState, luaTokenBucket, luaFixedWindow, luaSlidingWindow, luaMain}, "\n")
	// SHA is the hash by which Redis knows the script.
	SHA = redis.NewScript(Source).Hash()
)

// StateFormat is the version of the values of limits' keys. It grows when daemons
// of the version before cannot read them any more.
const StateFormat = 1

// Formats are the state formats that this version reads.
func Formats() []int { return []int{StateFormat} }

// Mode is what the script does with a group.
type Mode uint8

const (
	Check    Mode = iota // decide as if to take, charge nothing
	Take                 // decide and charge
	GiveBack             // return what was taken at the moments in decisions
	// takeByRole is what the script calls a take of several hits that are not
	// all enforced. One hit alone is charged or not whatever its role, and a
	// Check says the same of each hit.
	takeByRole
)

// Group is a group of hits that one command decides as a whole: those of a
// request, or on a cluster those of one hash tag of it.
type Group struct {
	Mode Mode
	// Hits are at least one, and have distinct keys, as they are in Redis.
	Hits []bucket.Hit
	// Decisions are the result, one for each hit. A give-back needs those of
	// the take.
	Decisions []bucket.Decision
	// Err is ErrUnreadable, or what the user of the group has set.
	Err error

	Hash uint64 // see SetHash
	// Same is the next of the equal groups that share a line of the script's
	// input, in order of arrival; Coalesce links them.
	Same *Group
}

// hasRoles reports whether the roles of the hits matter to what is charged.
func (g *Group) hasRoles() bool {
	if len(g.Hits) == 1 {
		return false
	}
	for i := range g.Hits {
		if g.Hits[i].Role != bucket.Enforced {
			return true
		}
	}
	return false
}

// The kinds of limits in the script's input; main.lua says which numbers each
// has.
const (
	kindBucket = iota + 1
	kindLeaky
	kindFixed
	kindSliding
	kindDenied
)

// appendLimit appends a limit's kind and its other six numbers.
func appendLimit(dst []byte, l *bucket.Limit) []byte {
	kind, a, b, c, d := int64(kindDenied), int64(0), int64(0), int64(0), int64(0)
	switch {
	case l.Requests == 0:
		if l.Algorithm == bucket.FixedWindow {
			a = l.PeriodMicros
		}
	case l.Algorithm.IsBucket():
		kind, a, b, c, d = kindBucket, l.Quantum, l.Unit, l.Rate, l.MaxDebt
		if l.Algorithm == bucket.LeakyBucket {
			kind = kindLeaky
		}
	case l.Algorithm == bucket.FixedWindow:
		kind, a = kindFixed, l.PeriodMicros
	default:
		kind, a, b = kindSliding, l.PeriodMicros, l.SlotMicros
	}
	return appendNumbers(dst, kind, int64(l.Charging()), l.Capacity, a, b, c, d)
}

// appendNumbers appends whole numbers under 2^53 as little-endian doubles,
// which the script reads in one step each and exactly.
func appendNumbers(dst []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(float64(n)))
	}
	return dst
}
