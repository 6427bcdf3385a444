package steer

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/cli/exit"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// lacking holds what is known of daemons that may not have changes in force.
type lacking struct {
	pending map[string]bool // by address
	// unknownFor is for how long there may be further, unknown ones.
	unknownFor time.Duration
}

// reached is what answers to changes say about daemons.
type reached interface {
	GetPending() []*adminv1.Daemon
	GetUnknownFor() *durationpb.Duration
}

func (l *lacking) add(r reached) {
	for _, d := range r.GetPending() {
		if l.pending == nil {
			l.pending = make(map[string]bool)
		}
		l.pending[cmp.Or(d.GetAddress(), d.GetId())] = true
	}
	l.unknownFor = max(l.unknownFor, r.GetUnknownFor().AsDuration())
}

// tell names the daemons, and returns what a command ends with whose changes are made.
func (l *lacking) tell(to io.Writer) error {
	if len(l.pending) > 0 {
		fmt.Fprintf(to, "not every daemon is known to have it in force yet: %s; each has it as soon as it reaches the store\n",
			strings.Join(slices.Sorted(maps.Keys(l.pending)), ", "))
	}
	if l.unknownFor > 0 {
		fmt.Fprintf(to, "for %s there may be more daemons without it: Redis has lost, begun or failed over the register of daemons, or does not answer\n", timespan.Format(l.unknownFor))
	}
	if len(l.pending) > 0 || l.unknownFor > 0 {
		return exit.Code(exit.Pending)
	}
	return nil
}
