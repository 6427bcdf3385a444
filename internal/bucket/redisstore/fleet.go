package redisstore

import (
	"context"
	_ "embed" // the script
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket/redisstore/script"
)

var (
	//go:embed lua/fleet.lua
	fleetScript    string
	fleetScriptSHA = script.SHAOf(fleetScript)
)

const (
	// signInEvery leaves room for two sign-ins that fail before the entry is
	// gone.
	signInEvery = 2 * time.Second
	// entryLives is how long after a sign-in the entry is gone (fleet.lua).
	entryLives = 7 * time.Second
	// signOutTimeout bounds the goodbye of a daemon that stops.
	signOutTimeout = time.Second
	fleetLogEvery  = time.Minute
)

// FleetOptions say who a daemon is among those that share its prefix.
type FleetOptions struct {
	// Address is the daemon's host name and gRPC port, for people to know it
	// by.
	Address string
	Version string
	// Rules returns a fingerprint of the rules in force; nil means none. It is
	// asked at each sign-in.
	Rules func() string
	// Every is how often to sign in, less than 7 s; 0 means 2 s.
	Every time.Duration
	// Log may be nil.
	Log *slog.Logger
	// Clock replaces this machine's clock in tests, where it spaces log lines
	// and tells how long the daemon is up and fewer others have been seen.
	Clock func() time.Time
}

// Fleet is a daemon's part in the register of those that share a prefix in
// Redis. Each signs in every 2 s under one key; one that did not for 7 s is
// gone.
//
// The register guards what all daemons of a prefix must agree on. A daemon that
// finds a live one with other hash tags, or where one of the two cannot read
// the other's states, is not added and must not serve: see Conflict. So the
// first one in wins, and a daemon that is in is never refused for one that
// comes later. A register that is lost, which a clock of Redis that jumps ahead
// does too, fills again one by one: a daemon that was refused stands back until
// those that run have had the time to sign in.
type Fleet struct {
	store   *Store
	self    Member
	started time.Time
	rules   func() string
	every   time.Duration
	log     *slog.Logger
	clock   func() time.Time

	size     atomic.Int64
	conflict atomic.Pointer[conflictError]

	// mu lets one sign-in happen at a time and guards what is below.
	mu            sync.Mutex
	signedIn      bool
	inRegister    int       // daemons at the last sign-in; unknown after a failure
	fewerSince    time.Time // when it last became less
	failureLogged time.Time // zero after a success
	refusalLogged time.Time // zero while there is no conflict
	refusedAt     time.Time // when it was last refused
	rulesWatch    rulesWatch
}

// NewFleet returns the part of a daemon that uses the store. It does nothing
// before SignIn or Run.
func (s *Store) NewFleet(o FleetOptions) *Fleet {
	f := &Fleet{
		store: s,
		self: Member{
			ID:          fmt.Sprintf("%016x", rand.Uint64()),
			Address:     entryText(o.Address),
			Version:     entryText(o.Version),
			HashTags:    len(s.tags),
			StateFormat: StateFormat,
			Reads:       readableFormats(),
		},
		rules: o.Rules,
		every: o.Every,
		log:   o.Log,
		clock: o.Clock,
	}
	if f.rules == nil {
		f.rules = func() string { return "" }
	}
	if f.every == 0 {
		f.every = signInEvery
	}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	if f.clock == nil {
		f.clock = time.Now
	}
	f.started = f.clock()
	f.size.Store(1)
	f.inRegister = unknown
	return f
}

// Size returns the number of live daemons, this one included, so at least 1.
// It grows at once, and shrinks when fewer have been seen for 7 s. While Redis
// is away it is the last known.
func (f *Fleet) Size() int { return int(f.size.Load()) }

// Conflict returns why this daemon must not serve, as last seen, or nil. It
// names the other daemon and this one. It is nil before the first sign-in.
func (f *Fleet) Conflict() error {
	if c := f.conflict.Load(); c != nil {
		return *c
	}
	return nil
}

// Run signs in at once and then again and again until ctx ends, and then signs
// out. What fails is tried again at the next turn.
func (f *Fleet) Run(ctx context.Context) {
	tick := time.NewTicker(f.every)
	defer tick.Stop()
	for {
		_ = f.SignIn(ctx) // which logs
		select {
		case <-ctx.Done():
			f.signOut(ctx)
			return
		case <-tick.C:
		}
	}
}

// SignIn adds or renews this daemon's entry. It returns the conflict where
// there is one, or was one within the last 7 s, and fails where Redis does not
// answer within the store's timeout; both are logged, at most once a minute. To
// sign in twice does no harm.
func (f *Fleet) SignIn(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	self := f.self
	self.Rules = entryText(f.rules())
	action := "join"
	if f.clock().Sub(f.refusedAt) < entryLives {
		action = "look"
	}
	r, err := f.store.callFleet(ctx, action, self, f.clock().Sub(f.started))
	if err != nil {
		f.inRegister = unknown
		if ctx.Err() == nil {
			f.logFailure(err)
		}
		return err
	}
	f.failureLogged = time.Time{}
	added := slices.ContainsFunc(r.members, func(m Member) bool { return m.ID == self.ID })
	size := len(r.members)
	if !added {
		size++
	}
	f.resize(size)
	if len(r.conflicts) > 0 {
		conflict := newConflict(f.store.prefix, self, r.conflicts)
		f.conflict.Store(&conflict)
		f.refusedAt = f.clock()
		f.signedIn = false
		f.logRefusal(conflict)
		return conflict
	}
	if action == "look" {
		return f.Conflict()
	}
	f.conflict.Store(nil)
	f.refusalLogged = time.Time{}
	if !added {
		err := errors.New("redis: the register of daemons is full")
		f.logFailure(err)
		return err
	}
	if !f.signedIn {
		f.signedIn = true
		f.log.Info("signed in to the register of daemons", "id", self.ID, "daemons", size)
	}
	f.watchRules(r.members)
	return nil
}

// unknown is more than any number of daemons in the register.
const unknown = math.MaxInt

// resize is told how many daemons the register holds. One that Redis lost, or
// that expired while Redis was away, fills again one by one, and who is the
// first in it is not alone. So fewer count only when everybody had the time to
// sign in again.
func (f *Fleet) resize(n int) {
	if n < f.inRegister {
		f.fewerSince = f.clock()
	}
	f.inRegister = n
	if n > f.Size() || f.clock().Sub(f.fewerSince) >= entryLives {
		f.size.Store(int64(n))
	}
}

func (f *Fleet) logFailure(err error) {
	f.signedIn = false
	if now := f.clock(); now.Sub(f.failureLogged) >= fleetLogEvery {
		f.failureLogged = now
		f.log.Warn("could not sign in to the register of daemons; it is tried again", "error", err)
	}
}

func (f *Fleet) logRefusal(conflict conflictError) {
	if now := f.clock(); now.Sub(f.refusalLogged) >= fleetLogEvery {
		f.refusalLogged = now
		f.log.Error("this daemon must not serve", "error", conflict)
	}
}

func (f *Fleet) watchRules(members []Member) {
	if f.rulesWatch.due(f.clock(), members) {
		f.log.Warn("daemons that share a prefix have different rules; together they may admit more than each of them says",
			"prefix", f.store.prefix, "rules", RulesDiffer(members))
	}
}

// signOut removes the entry, so that the others need not wait for it to expire.
func (f *Fleet) signOut(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), signOutTimeout)
	defer cancel()
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.store.callFleet(ctx, "leave", f.self, 0); err != nil {
		f.log.Debug("could not sign out of the register of daemons", "error", err)
	}
}

// Members returns the daemons that are signed in under the store's prefix, by
// address, and the moment on Redis's clock to which that applies. It changes
// nothing.
func (s *Store) Members(ctx context.Context) ([]Member, time.Time, error) {
	r, err := s.callFleet(ctx, "list", Member{}, 0)
	return r.members, r.at, err
}

// fleetKey has a hash tag that is none of the limits' tags, so it is the same
// whatever their number.
func (s *Store) fleetKey() string { return s.prefix + "{~fleet}" }

// callFleet sends the register's script an action: join, look, leave or list.
// It is safe to send any of them twice.
func (s *Store) callFleet(ctx context.Context, action string, self Member, up time.Duration) (register, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	own, err := self.entry(up)
	if err != nil {
		return register{}, wrap(err)
	}
	clock := s.clockArg()
	call := func(command, script string) ([]any, error) {
		cmd := redis.NewCmd(ctx, command, script, 1, s.fleetKey(), clock, action, own)
		_ = s.client.Process(ctx, once{cmd}) // cmd has the error too
		return cmd.Slice()
	}
	reply, err := call("evalsha", fleetScriptSHA)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = call("eval", fleetScript)
	}
	if err != nil {
		s.doubtTopology(ctx, err)
		return register{}, wrap(err)
	}
	r, err := decodeRegister(reply)
	if err != nil {
		return register{}, wrap(err)
	}
	return r, nil
}
