package redisstore

import (
	"crypto/sha1"
	_ "embed" // the script's files
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

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
	//go:embed lua/batch.lua
	luaBatch string

	script    = strings.Join([]string{luaState, luaTokenBucket, luaFixedWindow, luaSlidingWindow, luaBatch}, "\n")
	scriptSHA = func() string { sum := sha1.Sum([]byte(script)); return hex.EncodeToString(sum[:]) }()
)

// mode is what the script does with a group.
type mode uint8

const (
	check    mode = iota // decide as if to take, change nothing
	take                 // decide and charge
	giveBack             // return what was taken at the moments in decisions
)

// group is a part of a request that one call decides as a whole. Its hits have
// distinct keys. decisions and err are what came of it; a give-back needs
// the take's decisions.
type group struct {
	mode      mode
	hits      []bucket.Hit
	decisions []bucket.Decision
	err       error
}

var errUnreadable = errors.New("a key holds a state that cannot be read")

// The kinds of limits in the script's input; batch.lua tells their numbers.
const (
	kindBucket = iota + 1
	kindLeaky
	kindFixed
	kindSliding
	kindDenied
)

// batch is the input of one call of the script, for groups whose keys have
// the same tag where that matters.
type batch struct {
	keys          []any
	limits, input []byte
}

// newBatch encodes groups. keyOf gives the key of a hit in Redis.
func newBatch(groups []*group, keyOf func(bucket.Hit) string) batch {
	var b batch
	keys := make(map[string]int)
	limits := make(map[*bucket.Limit]int)
	for _, g := range groups {
		b.input = appendNumbers(b.input, int64(g.mode), int64(len(g.hits)))
		for i, h := range g.hits {
			key := keyOf(h)
			k, ok := keys[key]
			if !ok {
				k = len(keys) + 1
				keys[key] = k
				b.keys = append(b.keys, key)
			}
			l, ok := limits[h.Limit]
			if !ok {
				l = len(limits) + 1
				limits[h.Limit] = l
				b.limits = appendLimit(b.limits, h.Limit)
			}
			var at int64
			if g.mode == giveBack {
				at = g.decisions[i].At
			}
			b.input = appendNumbers(b.input, int64(k), int64(l), h.Cost, at)
		}
	}
	return b
}

func appendLimit(dst []byte, l *bucket.Limit) []byte {
	var postpaid int64
	if l.Postpaid {
		postpaid = 1
	}
	kind, a, b, c, d := int64(kindDenied), int64(0), int64(0), int64(0), int64(0)
	switch {
	case l.Requests == 0:
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
	return appendNumbers(dst, kind, postpaid, l.Capacity, a, b, c, d)
}

// appendNumbers appends whole numbers under 2^53 as little-endian doubles,
// which the script reads in one step each and exactly.
func appendNumbers(dst []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(float64(n)))
	}
	return dst
}

// The numbers of a decision in the script's reply.
const decisionLen = 5

// decode reads the script's reply into the groups. An error means that the
// reply is not the script's, and that nothing is known about any group.
func decode(reply []any, groups []*group) error {
	numbers := make([]int64, len(reply))
	for i, r := range reply {
		n, ok := r.(int64)
		if !ok {
			return fmt.Errorf("the script's reply holds a %T, where only integers are expected", r)
		}
		numbers[i] = n
	}
	short := func() error {
		return fmt.Errorf("the script's reply of %d numbers does not fit %d groups", len(reply), len(groups))
	}
	for _, g := range groups {
		if len(numbers) == 0 {
			return short()
		}
		status := numbers[0]
		numbers = numbers[1:]
		switch {
		case status == -1:
			g.err = errUnreadable
			continue
		case status != 0 && status != 1:
			return fmt.Errorf("the script's reply holds %d, where a group's status is expected", status)
		case g.mode == giveBack:
			continue
		}
		if len(numbers) < decisionLen*len(g.hits) {
			return short()
		}
		for i := range g.hits {
			var err error
			if g.decisions[i], err = decodeDecision([decisionLen]int64(numbers)); err != nil {
				return err
			}
			numbers = numbers[decisionLen:]
		}
		if bucket.Allowed(g.decisions) != (status == 1) {
			return fmt.Errorf("the script's reply calls a group %d and its hits otherwise", status)
		}
	}
	if len(numbers) > 0 {
		return short()
	}
	return nil
}

func decodeDecision(n [decisionLen]int64) (bucket.Decision, error) {
	remaining, retry, reset, wait, at := n[0], n[1], n[2], n[3], n[4]
	const maxWait = math.MaxInt64 / int64(time.Microsecond)
	if remaining < 0 || retry < -1 || retry > maxWait || reset < 0 || reset > maxWait || wait < 0 || wait > maxWait || at < 0 {
		return bucket.Decision{}, fmt.Errorf("the script's reply holds %v, which is no decision", n)
	}
	d := bucket.Decision{
		Remaining:  remaining,
		RetryAfter: bucket.Never,
		ResetAfter: time.Duration(reset) * time.Microsecond,
		Wait:       time.Duration(wait) * time.Microsecond,
		At:         at,
	}
	if retry >= 0 {
		d.RetryAfter = time.Duration(retry) * time.Microsecond
	}
	return d, nil
}
