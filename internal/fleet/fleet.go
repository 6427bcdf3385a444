package fleet

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

	"github.com/ratelimitd/ratelimitd/internal/logthin"
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

// Options of a Membership: the daemon among those that share its prefix.
type Options struct {
	// Address is the daemon's host name and gRPC port, for people to know it
	// by.
	Address string
	Version string
	// HashTags is over how many hash tags the daemon spreads keys.
	HashTags int
	// StateFormat is what it writes, Reads what it can read.
	StateFormat int
	Reads       []int
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

// Membership is a daemon's part in the register of those that share a prefix in
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
type Membership struct {
	register Register
	self     Daemon
	started  time.Time
	rules    func() string
	every    time.Duration
	log      *slog.Logger
	clock    func() time.Time

	size     atomic.Int64
	conflict atomic.Pointer[conflictError]

	// mu lets one sign-in happen at a time and guards what is below.
	mu                          sync.Mutex
	signedIn                    bool
	inRegister                  int       // daemons at the last sign-in; unknown after a failure
	fewerSince                  time.Time // when it last became less
	refusedAt                   time.Time // when it was last refused
	rulesWatch                  rulesWatch
	failureLines, conflictLines logthin.Thinner
}

// New returns a daemon's part in a register. It does nothing before SignIn or
// Run.
func New(r Register, o Options) *Membership {
	f := &Membership{
		register: r,
		self: Daemon{
			ID:          fmt.Sprintf("%016x", rand.Uint64()),
			Address:     entryText(o.Address),
			Version:     entryText(o.Version),
			HashTags:    o.HashTags,
			StateFormat: o.StateFormat,
			Reads:       o.Reads,
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
func (f *Membership) Size() int { return int(f.size.Load()) }

// Conflict returns why this daemon must not serve, as last seen, or nil. It
// names the other daemon and this one. It is nil before the first sign-in.
func (f *Membership) Conflict() error {
	if c := f.conflict.Load(); c != nil {
		return *c
	}
	return nil
}

// Run signs in at once and then again and again until ctx ends, and then signs
// out. What fails is tried again at the next turn.
func (f *Membership) Run(ctx context.Context) {
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
// answer within the connection's timeout; both are logged, at most once a minute. To
// sign in twice does no harm.
func (f *Membership) SignIn(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	self := f.self
	self.Rules = entryText(f.rules())
	action := "join"
	if f.clock().Sub(f.refusedAt) < entryLives {
		action = "look"
	}
	r, err := f.register.call(ctx, action, self, f.clock().Sub(f.started))
	if err != nil {
		f.inRegister = unknown
		if ctx.Err() == nil {
			f.logFailure(err)
		}
		return err
	}
	f.failureLines.Reset()
	added := slices.ContainsFunc(r.daemons, func(m Daemon) bool { return m.ID == self.ID })
	size := len(r.daemons)
	if !added {
		size++
	}
	f.resize(size)
	if len(r.conflicts) > 0 {
		conflict := newConflict(f.register.Redis.Prefix(), self, r.conflicts)
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
	f.conflictLines.Reset()
	if !added {
		err := errors.New("redis: the register of daemons is full")
		f.logFailure(err)
		return err
	}
	if !f.signedIn {
		f.signedIn = true
		f.log.Info("signed in to the register of daemons", "id", self.ID, "daemons", size)
	}
	f.watchRules(r.daemons)
	return nil
}

// unknown is more than any number of daemons in the register.
const unknown = math.MaxInt

// resize is told how many daemons the register holds. One that Redis lost, or
// that expired while Redis was away, fills again one by one, and who is the
// first in it is not alone. So fewer count only when everybody had the time to
// sign in again.
func (f *Membership) resize(n int) {
	if n < f.inRegister {
		f.fewerSince = f.clock()
	}
	f.inRegister = n
	if n > f.Size() || f.clock().Sub(f.fewerSince) >= entryLives {
		f.size.Store(int64(n))
	}
}

func (f *Membership) logFailure(err error) {
	f.signedIn = false
	if _, due := f.failureLines.Due(f.clock(), fleetLogEvery); due {
		f.log.Warn("could not sign in to the register of daemons; it is tried again", "error", err)
	}
}

func (f *Membership) logRefusal(conflict conflictError) {
	if _, due := f.conflictLines.Due(f.clock(), fleetLogEvery); due {
		f.log.Error("this daemon must not serve", "error", conflict)
	}
}

func (f *Membership) watchRules(daemons []Daemon) {
	if f.rulesWatch.due(f.clock(), daemons) {
		f.log.Warn("daemons that share a prefix have different rules; together they may admit more than each of them says",
			"prefix", f.register.Redis.Prefix(), "rules", RulesDiffer(daemons))
	}
}

// signOut removes the entry, so that the others need not wait for it to expire.
func (f *Membership) signOut(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), signOutTimeout)
	defer cancel()
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.register.call(ctx, "leave", f.self, 0); err != nil {
		f.log.Debug("could not sign out of the register of daemons", "error", err)
	}
}
