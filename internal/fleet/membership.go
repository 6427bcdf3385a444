package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/logthin"
)

const (
	// signInEvery lets two sign-ins fail before the registration expires.
	signInEvery = 2 * time.Second
	// registrationLives is how long a registration lives (LIFE in fleet.lua).
	registrationLives = 7 * time.Second
	// signOutTimeout bounds the sign-out of a daemon that stops.
	signOutTimeout = time.Second
	logEvery       = time.Minute
)

// Options are the options of a Membership.
type Options struct {
	// Address is the daemon's host name and gRPC port, for people.
	Address string
	Version string
	// HashTags is the daemon's redis.hash_tags.
	HashTags int
	// StateFormat is the format that it writes, and Reads are the formats that it reads.
	StateFormat int
	Reads       []int
	// Rules returns a fingerprint of the rules in force, and Change the ID of the last
	// change of assignments that was seen. They are called at each sign-in; nil means none.
	Rules, Change func() string
	// Zones is the version of the daemon's time zones.
	Zones string
	// Every is how often to sign in, less than 6 s; 0 means 2 s.
	Every time.Duration
	// Log may be nil, which means no log.
	Log *slog.Logger
	// Clock replaces this machine's clock in tests. It measures how long the
	// daemon runs, how long fewer others have been seen, and the time between log
	// lines.
	Clock func() time.Time
}

// Membership keeps a daemon in the register of its prefix. Every daemon signs in every 2
// s; after 7 s without a sign-in it is gone.
//
// The register guards what all daemons of a prefix must agree on. A daemon is not added,
// and must not serve, if a registered one has other hash tags, or if one of the two
// cannot read the other's states: see Conflict. So the first daemon wins, and a
// registered one is never refused because of a later one. A lost register fills again one
// by one; it is also lost when the clock of Redis jumps ahead. A daemon that was refused
// waits until all running ones have had time to sign in again.
type Membership struct {
	register Register
	o        Options
	id       string
	started  time.Time

	size     atomic.Int64
	differ   atomic.Bool
	failed   atomic.Bool
	conflict atomic.Pointer[conflictError]

	// mu is held during a sign-in, and guards the fields below.
	mu                          sync.Mutex
	signedIn                    bool
	inRegister                  int       // daemons at the last sign-in; unknown after a failure
	fewerSince                  time.Time // when it last decreased
	refusedAt                   time.Time // when it was last refused
	rulesWatch                  rulesWatch
	failureLines, conflictLines logthin.Thinner
}

// New returns a Membership in a register. It does nothing before SignIn or Run.
func New(r Register, o Options) *Membership {
	none := func() string { return "" }
	if o.Rules == nil {
		o.Rules = none
	}
	if o.Change == nil {
		o.Change = none
	}
	if o.Every == 0 {
		o.Every = signInEvery
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	m := &Membership{register: r, o: o, id: fmt.Sprintf("%016x", rand.Uint64()), started: o.Clock(), inRegister: unknown}
	m.size.Store(1)
	return m
}

// ID returns the daemon's ID in the register.
func (m *Membership) ID() string { return m.id }

// Size returns the number of daemons including this one, so at least 1. It grows at once,
// and shrinks when fewer have been seen for 7 s. While Redis does not answer, it is the
// last known number.
func (m *Membership) Size() int { return int(m.size.Load()) }

// HasDifferentRules reports whether the daemons had different rules at the last
// sign-in that Redis answered. Daemons without a fingerprint do not count.
func (m *Membership) HasDifferentRules() bool { return m.differ.Load() }

// HasFailed reports whether Redis did not answer the last sign-in, or refused it.
func (m *Membership) HasFailed() bool { return m.failed.Load() }

// Conflict returns why this daemon must not serve, as of the last sign-in, or nil. The
// error names the other daemon and this one. Before the first sign-in it is nil.
func (m *Membership) Conflict() error {
	if c := m.conflict.Load(); c != nil {
		return *c
	}
	return nil
}

// Run signs in at once and then at every interval until ctx ends; then it signs out.
func (m *Membership) Run(ctx context.Context) {
	for {
		next := time.Now().Add(m.o.Every)
		_ = m.SignIn(ctx) // it has been logged
		select {
		case <-ctx.Done():
			m.signOut(ctx)
			return
		case <-time.After(time.Until(next)):
		}
	}
}

// SignIn adds or renews this daemon's registration. It returns the conflict if there is
// one, or was one within the last 7 s. It fails if Redis does not answer within the
// connection's timeout. Both are logged, at most once a minute. Signing in twice does no
// harm.
func (m *Membership) SignIn(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.o.Clock()
	what, others := join, 0
	if now.Sub(m.refusedAt) < registrationLives {
		what, others = check, 1 // which does not count this daemon
	}
	self := m.self()
	r, err := m.register.call(ctx, what, self, now.Sub(m.started))
	m.failed.Store(err != nil)
	if err != nil {
		m.inRegister, m.signedIn = unknown, false
		if _, due := m.failureLines.Due(now, logEvery); due && ctx.Err() == nil {
			m.o.Log.Warn("could not sign in to the register of daemons; it is tried again", "error", err)
		}
		return err
	}
	if len(r.conflicts) > 0 {
		others = 1
	}
	m.resize(len(r.daemons) + others)
	m.differ.Store(len(addressesByRules(r.daemons)) > 1)
	if len(r.conflicts) > 0 {
		conflict := newConflict(m.register.Redis.Prefix(), self, r.conflicts)
		m.conflict.Store(&conflict)
		m.refusedAt, m.signedIn = now, false
		if _, due := m.conflictLines.Due(now, logEvery); due {
			m.o.Log.Error("this daemon must not serve", "error", conflict)
		}
		return conflict
	}
	if what == check {
		return m.Conflict()
	}
	m.conflict.Store(nil)
	m.conflictLines.Reset()
	if !m.signedIn {
		m.signedIn = true
		m.o.Log.Info("signed in to the register of daemons", "id", self.ID, "daemons", len(r.daemons))
	}
	if m.rulesWatch.due(now, r.daemons) {
		m.o.Log.Warn("daemons that share a prefix have different rules; together they may admit more than each of them says",
			"prefix", m.register.Redis.Prefix(), "rules", RulesDiffer(r.daemons))
	}
	return nil
}

// self returns this daemon as it signs in.
func (m *Membership) self() Daemon {
	return Daemon{
		ID:          m.id,
		Address:     m.o.Address,
		Version:     m.o.Version,
		HashTags:    m.o.HashTags,
		StateFormat: m.o.StateFormat,
		Reads:       m.o.Reads,
		Rules:       m.o.Rules(),
		Zones:       m.o.Zones,
		Change:      m.o.Change(),
	}
}

// unknown is more than any number of daemons in the register.
const unknown = math.MaxInt

// resize sets the size to the number of daemons in the register. A register that Redis
// lost, or that expired while Redis was away, fills again one by one. So a smaller number
// counts only when all have had time to sign in again.
func (m *Membership) resize(n int) {
	if n < m.inRegister {
		m.fewerSince = m.o.Clock()
	}
	m.inRegister = n
	if n > m.Size() || m.o.Clock().Sub(m.fewerSince) >= registrationLives {
		m.size.Store(int64(n))
	}
}

// signOut removes the registration, so that the others need not wait until it
// expires.
func (m *Membership) signOut(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), signOutTimeout)
	defer cancel()
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.register.call(ctx, leave, m.self(), 0); err != nil {
		m.o.Log.Debug("could not sign out of the register of daemons", "error", err)
	}
}
