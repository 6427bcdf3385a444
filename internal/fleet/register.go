package fleet

import (
	"cmp"
	"context"
	_ "embed" // the script
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/redisconn"
)

//go:embed fleet.lua
var source string

var script = redisconn.NewScript(source)

// Register is the register of the daemons that share a prefix in Redis.
type Register struct {
	// Redis belongs to the caller.
	Redis *redisconn.Conn
	// Clock replaces the clock of Redis, in microseconds since the Unix epoch.
	// It is for tests; production leaves it nil.
	Clock func() int64
}

// Daemons returns the daemons that are signed in, sorted by address, and when that was,
// by Redis's clock. It changes nothing. It fails if Redis does not answer within the
// connection's timeout.
func (r Register) Daemons(ctx context.Context) ([]Daemon, time.Time, error) {
	s, err := r.call(ctx, list, Daemon{}, 0)
	return s.daemons, s.at, err
}

// action is what the script should do. Each may be run twice.
type action string

const (
	join  action = "join"
	check action = "check"
	leave action = "leave"
	list  action = "list"
)

// call runs the script for a daemon that has run for up.
func (r Register) call(ctx context.Context, what action, self Daemon, up time.Duration) (state, error) {
	registration, err := json.Marshal(self)
	if err != nil {
		return state{}, wrap(err)
	}
	clock, reads := "", ","
	if r.Clock != nil {
		clock = strconv.FormatInt(r.Clock(), 10)
	}
	for _, format := range self.Reads {
		reads += strconv.Itoa(format) + ","
	}
	// The hash tag is not one of the limits', so it does not depend on their number.
	reply, err := r.Redis.Run(ctx, script, []string{r.Redis.Prefix() + "{~fleet}"}, clock, string(what),
		max(0, up.Milliseconds()), self.ID, self.HashTags, self.StateFormat, reads, registration).Slice()
	if err != nil {
		return state{}, wrap(err)
	}
	s, err := decode(reply)
	if err != nil {
		return state{}, wrap(err)
	}
	return s, nil
}

func wrap(err error) error { return fmt.Errorf("redis: %w", err) }

// state is the content of the register, as the script replies.
type state struct {
	at      time.Time // on the clock of Redis
	daemons []Daemon  // those alive, by address
	// conflicts are the daemons with which the caller cannot share keys.
	conflicts []Daemon
}

// decode reads the script's reply.
func decode(reply []any) (s state, _ error) {
	for i, item := range reply[min(2, len(reply)):] {
		text, _ := item.(string)
		fields := strings.SplitN(text, " ", 7)
		started, err1 := strconv.ParseInt(fields[0], 10, 64)
		seen, err2 := strconv.ParseInt(fields[min(1, len(fields)-1)], 10, 64)
		d := Daemon{Started: time.UnixMilli(started), Seen: time.UnixMilli(seen)}
		if err := cmp.Or(err1, err2, json.Unmarshal([]byte(fields[len(fields)-1]), &d)); err != nil {
			return s, fmt.Errorf("the register holds %.100q: %w", text, err)
		}
		s.daemons = append(s.daemons, d)
		if conflicts, _ := reply[1].(int64); int64(i) < conflicts {
			s.conflicts = append(s.conflicts, d)
		}
	}
	if len(reply) > 0 {
		at, _ := reply[0].(int64)
		s.at = time.UnixMilli(at)
	}
	byAddress := func(a, b Daemon) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.ID, b.ID))
	}
	slices.SortFunc(s.daemons, byAddress)
	slices.SortFunc(s.conflicts, byAddress)
	return s, nil
}
