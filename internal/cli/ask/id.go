package ask

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// bindID defines the flag for the ID of a take. A script whose variable is empty should
// not take without one.
func bindID(fs *pflag.FlagSet, to *string, usage string) {
	fs.Var(cmdline.Value{
		Kind: "text", May: "1 to 64 bytes, such as a UUID",
		Read: func(text string) error {
			if text == "" {
				return cmdline.ErrNotAllowed
			}
			*to = text // the daemon knows how long it may be
			return nil
		},
	}, "id", usage)
}

// settleWithin is how long a take can be settled.
func settleWithin(to *time.Duration) cmdline.Value {
	return cmdline.Value{
		Kind: "duration", May: "1us to 24h with a unit, such as 90s or 2h",
		Read: func(text string) error {
			d, err := time.ParseDuration(text)
			if err != nil || d < time.Microsecond || d > bucket.MaxReservation {
				return cmdline.ErrNotAllowed
			}
			*to = d
			return nil
		},
	}
}

// idOf are the flags of a command that asks about an ID.
type idOf struct{ id, caller string }

func (o *idOf) bind(fs *pflag.FlagSet) {
	bindID(fs, &o.id, "also say what takes with this id have charged")
	fs.StringVar(&o.caller, "caller", "", "name of the caller whose id it is, where callers have names")
}

func (o *idOf) check() error {
	if o.caller != "" && o.id == "" {
		return errors.New("found --caller without --id; allowed: beside the id of the caller's take")
	}
	return nil
}

// takesText says how many takes there are.
func takesText(n uint64) string {
	if n == 1 {
		return "1 take"
	}
	return fmt.Sprintf("%s takes", words.Thousands(int64(n)))
}

// hasReserved reports whether a take with an ID has charged something that can be settled.
func hasReserved(r *ratelimitv1.TakeResponse) bool {
	for _, l := range r.GetLimits() {
		if l.GetTakenAt() != 0 && l.GetAlgorithm() != ratelimitv1.Algorithm_ALGORITHM_CONCURRENCY {
			return true
		}
	}
	return false
}
