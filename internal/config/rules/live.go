package rules

import (
	"crypto/sha256"

	"github.com/ratelimitd/ratelimitd/internal/config/reload"
)

// Live holds the rules in force. Its methods may be called concurrently. A request asks
// for the rules once and keeps what it got.
type Live struct{ *reload.Live[Set] }

// Rules returns the rules in force, or nil if none were ever loaded.
func (l *Live) Rules() *Set { return l.Value() }

// Fixed returns a Live in which these rules are permanently in force.
func Fixed(set *Set) *Live {
	l := &Live{reload.New[Set]("limits", "fixed", nil, nil)}
	if err := l.Replace(reload.Files[Set]{
		Digest: [sha256.Size]byte{1},
		Parse:  func(*Set) (*Set, []any, error) { return set, nil, nil },
	}); err != nil {
		panic(err) // Parse returns none
	}
	return l
}
