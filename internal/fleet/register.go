package fleet

import (
	"cmp"
	"context"
	_ "embed" // the script
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/redisconn"
)

//go:embed fleet.lua
var source string

var sha = redis.NewScript(source).Hash()

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
	s, err := r.call(ctx, list, caller{})
	return s.daemons, s.at, err
}

// key returns the register's key. Its hash tag is not one of the limits', so it
// does not depend on their number.
func (r Register) key() string { return r.Redis.Prefix() + "{~fleet}" }

// action is what the script should do. Each may be run twice.
type action string

const (
	join  action = "join"
	look  action = "look"
	leave action = "leave"
	list  action = "list"
)

// caller is the caller of the script.
type caller struct {
	Daemon
	up time.Duration
	// roll is the name of the roll that it knows, or empty, and rollAge is for how long
	// that roll certainly existed.
	roll    string
	rollAge time.Duration
	signIn  uint64 // the number of its sign-in
}

// call runs the script.
func (r Register) call(ctx context.Context, what action, by caller) (state, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Redis.Timeout())
	defer cancel()
	own, err := by.registration(by.up)
	if err != nil {
		return state{}, wrap(err)
	}
	newRoll := fmt.Sprintf("%016x", rand.Uint64())
	clock := ""
	if r.Clock != nil {
		clock = strconv.FormatInt(r.Clock(), 10)
	}
	send := func(command, script string) ([]any, error) {
		cmd := redis.NewCmd(ctx, command, script, 2, r.key(), r.key()+"~roll", clock, string(what), own,
			newRoll, by.roll, max(0, by.rollAge.Milliseconds()), by.signIn)
		_ = r.Redis.Process(ctx, redisconn.Once{Cmder: cmd}) // cmd has the error too
		return cmd.Slice()
	}
	reply, err := send("evalsha", sha)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = send("eval", source)
	}
	if err != nil {
		r.Redis.ReloadAfter(ctx, err)
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
	roll      roll
}

// decode reads the script's reply.
func decode(reply []any) (state, error) {
	unexpected := func(what any) (state, error) {
		return state{}, fmt.Errorf("the reply of the register's script holds %v, which it should not", what)
	}
	if len(reply) < 3 {
		return unexpected(reply)
	}
	at, ok := reply[0].(int64)
	conflicts, ok2 := reply[1].(int64)
	text, ok3 := reply[2].(string)
	if !ok || !ok2 || !ok3 || conflicts < 0 || conflicts > int64(len(reply)-3) {
		return unexpected(reply[:3])
	}
	s := state{at: time.UnixMilli(at)}
	if s.roll, ok = parseRoll(text); !ok {
		return unexpected(text)
	}
	for _, item := range reply[3:] {
		text, _ := item.(string)
		var r registration
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			return unexpected(item)
		}
		d := r.Daemon
		d.Started, d.Seen = time.UnixMilli(r.Started), time.UnixMilli(r.Seen)
		s.daemons = append(s.daemons, d)
	}
	s.conflicts = slices.Clone(s.daemons[:conflicts])
	byAddress := func(a, b Daemon) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.ID, b.ID))
	}
	slices.SortFunc(s.daemons, byAddress)
	slices.SortFunc(s.conflicts, byAddress)
	return s, nil
}
