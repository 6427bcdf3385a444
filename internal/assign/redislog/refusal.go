package redislog

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
)

// A script that was refused has written nothing. Redis refuses it before it runs, or at
// its first write: for lack of memory or replicas, on a replica, and while no snapshot
// can be saved, a script that has already written may write on. A missing right, or a key
// of another type, is found by each script before its first write (see may.lua).
//
// Errors without one of these prefixes may come after a write. So may MOVED and ASK: the
// client leaves them on a command that it has forwarded and whose reply is lost.
var (
	// passingPrefixes begin refusals that end by themselves within seconds, such as those
	// of a failover.
	passingPrefixes = []string{"READONLY", "LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "BUSY"}
	// stayingPrefixes begin refusals that last until someone changes something.
	stayingPrefixes = []string{"OOM", "NOPERM", "MISCONF", "NOREPLICAS", "CROSSSLOT", "WRONGTYPE"}
)

func hasOneOf(err error, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}

// passes reports whether what Redis refused may succeed within seconds.
func passes(err error) bool { return errors.Is(err, errLost) || hasOneOf(err, passingPrefixes) }

// isRefusal reports whether a script that ended with err has certainly written nothing.
func isRefusal(err error) bool {
	return passes(err) || hasOneOf(err, stayingPrefixes) || redisconn.IsScriptsRight(err)
}

// refused reports whether a call that ended with err has certainly written nothing, each
// time it was sent.
func (c *call) refused(err error) bool { return !c.mayHaveRun && isRefusal(err) }

// refusal explains an error with which Redis has refused something to people.
func (s *Store) refusal(err error) error {
	// The position in the script means nothing to them.
	text, _, _ := strings.Cut(s.redis.Explain(redisconn.AnyNode, err).Error(), " script: ")
	return fmt.Errorf("refused by Redis, %w: %s", assign.ErrNothingChanged, text)
}
