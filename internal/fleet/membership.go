package fleet

import (
	"context"
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
	// signInEvery lets two sign-ins fail before the registration expires.
	signInEvery = 2 * time.Second
	// retryEvery is the pause after a failed sign-in: a promoted node must be found
	// before tenure is lost.
	retryEvery = 250 * time.Millisecond
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
	// Rules returns a fingerprint of the rules in force; nil means none. It is
	// called at each sign-in.
	Rules func() string
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
	self     Daemon
	started  time.Time
	rules    func() string
	every    time.Duration
	log      *slog.Logger
	clock    func() time.Time

	size     atomic.Int64
	differ   atomic.Bool
	conflict atomic.Pointer[conflictError]
	tenure   Tenure

	rollMu sync.Mutex
	rolls  watch // guarded by rollMu

	// mu is held during a sign-in, and guards the fields below.
	mu                          sync.Mutex
	signedIn                    bool
	signIns                     uint64    // number of attempted sign-ins
	inRegister                  int       // daemons at the last sign-in; unknown after a failure
	fewerSince                  time.Time // when it last decreased
	refusedAt                   time.Time // when it was last refused
	rulesWatch                  rulesWatch
	failureLines, conflictLines logthin.Thinner
}

// New returns a Membership in a register. It does nothing before SignIn or Run.
func New(r Register, o Options) *Membership {
	m := &Membership{
		register: r,
		self: Daemon{
			ID:          fmt.Sprintf("%016x", rand.Uint64()),
			Address:     harmless(o.Address),
			Version:     harmless(o.Version),
			HashTags:    o.HashTags,
			StateFormat: o.StateFormat,
			Reads:       o.Reads,
			Zones:       harmless(o.Zones),
		},
		rules: o.Rules,
		every: o.Every,
		log:   o.Log,
		clock: o.Clock,
	}
	if m.rules == nil {
		m.rules = func() string { return "" }
	}
	if m.every == 0 {
		m.every = signInEvery
	}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	if m.clock == nil {
		m.clock = time.Now
	}
	m.started = m.clock()
	m.tenure.init(m)
	m.size.Store(1)
	m.inRegister = unknown
	return m
}

// ID returns the daemon's ID in the register.
func (m *Membership) ID() string { return m.self.ID }

// Size returns the number of daemons including this one, so at least 1. It grows at once,
// and shrinks when fewer have been seen for 7 s. While Redis does not answer, it is the
// last known number.
func (m *Membership) Size() int { return int(m.size.Load()) }

// HasDifferentRules reports whether the daemons had different rules at the last
// sign-in that Redis answered. Daemons without a fingerprint do not count.
func (m *Membership) HasDifferentRules() bool { return m.differ.Load() }

// Conflict returns why this daemon must not serve, as of the last sign-in, or nil. The
// error names the other daemon and this one. Before the first sign-in it is nil.
func (m *Membership) Conflict() error {
	if c := m.conflict.Load(); c != nil {
		return *c
	}
	return nil
}

// Tenure returns the daemon's tenure, which begins and is regained while Run runs.
func (m *Membership) Tenure() *Tenure { return &m.tenure }

// Awaited are the daemons that the maker of a change must wait for.
type Awaited struct {
	// IDs are their IDs, sorted.
	IDs []string
	// Lacks is for how long there may be more, unknown since Redis lost the register or
	// its last sign-ins, or does not answer; none if it is not positive.
	Lacks time.Duration
	// IsMoved says that only the last sign-ins may be lost: another node answers, which
	// was promoted.
	IsMoved bool
	// Old are the ones of an earlier version, which have no tenure. They are among IDs.
	Old []Daemon
	// NoZones are those of an earlier version that have no time zones, Old among them.
	NoZones []Daemon
}

// Awaited returns the daemons that may decide by what they had before this call. It
// fails if Redis does not answer within the connection's timeout.
func (m *Membership) Awaited(ctx context.Context) (Awaited, error) {
	began := m.clock()
	s, err := m.register.call(ctx, list, caller{})
	if err != nil {
		return Awaited{Lacks: registrationLives}, err
	}
	m.rollMu.Lock()
	defer m.rollMu.Unlock()
	m.rolls.see(s.roll, m.clock())
	// Whether a daemon is gone is judged as of before the call: what the call read was
	// not true any earlier.
	a := Awaited{Lacks: m.rolls.lacks(began), IsMoved: m.rolls.isMoved}
	for id := range s.roll.signIns {
		if !m.rolls.isGone(id, began) {
			a.IDs = append(a.IDs, id)
		}
	}
	for _, d := range s.daemons {
		_, isOnRoll := s.roll.signIns[d.ID]
		if !isOnRoll {
			a.IDs, a.Old = append(a.IDs, d.ID), append(a.Old, d)
		}
		if !isOnRoll || d.Zones == "" {
			a.NoZones = append(a.NoZones, d)
		}
	}
	slices.Sort(a.IDs)
	return a, nil
}

// Run signs in at once and then at every interval until ctx ends; then it signs out. A
// failed sign-in is repeated after 250 ms.
func (m *Membership) Run(ctx context.Context) {
	var background sync.WaitGroup
	defer background.Wait()
	background.Go(func() { m.tenure.run(ctx) })
	for {
		next := time.Now().Add(m.every)
		if err := m.SignIn(ctx); err != nil && m.Conflict() == nil { // it has been logged
			next = time.Now().Add(min(m.every, retryEvery))
		}
		m.tenure.wakeIfLost()
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
// connection's timeout, or if the register is full. All of these are logged, at most once
// a minute. Signing in twice does no harm.
func (m *Membership) SignIn(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	self := m.self
	self.Rules = harmless(m.rules())
	what := join
	began := m.clock()
	if began.Sub(m.refusedAt) < registrationLives {
		what = look
	}
	r, err := m.register.call(ctx, what, m.caller(self))
	if err != nil {
		m.inRegister = unknown
		if ctx.Err() == nil {
			m.logFailure(err)
		}
		return err
	}
	m.rollMu.Lock()
	m.rolls.see(r.roll, m.clock())
	m.rollMu.Unlock()
	added := slices.ContainsFunc(r.daemons, func(d Daemon) bool { return d.ID == self.ID })
	size := len(r.daemons)
	if !added {
		size++
	}
	m.resize(size)
	m.differ.Store(len(addressesByRules(r.daemons)) > 1)
	if len(r.conflicts) > 0 {
		conflict := newConflict(m.register.Redis.Prefix(), self, r.conflicts)
		m.conflict.Store(&conflict)
		m.refusedAt = m.clock()
		m.signedIn = false
		m.logRefusal(conflict)
		return conflict
	}
	if what == look {
		return m.Conflict()
	}
	m.conflict.Store(nil)
	m.conflictLines.Reset()
	if !added {
		err := errors.New("redis: the register of daemons is full")
		m.logFailure(err)
		return err
	}
	m.tenure.extend(began)
	if !m.signedIn {
		m.signedIn = true
		m.log.Info("signed in to the register of daemons", "id", self.ID, "daemons", size)
	}
	m.watchRules(r.daemons)
	return nil
}

// caller returns the caller of the register's script. It numbers sign-ins.
func (m *Membership) caller(self Daemon) caller {
	m.rollMu.Lock()
	defer m.rollMu.Unlock()
	m.signIns++
	by := caller{Daemon: self, up: m.clock().Sub(m.started), signIn: m.signIns}
	if m.rolls.name != "" {
		by.roll, by.rollAge = m.rolls.name, m.clock().Sub(m.rolls.since)
	}
	return by
}

// unknown is more than any number of daemons in the register.
const unknown = math.MaxInt

// resize sets the size to the number of daemons in the register. A register that Redis
// lost, or that expired while Redis was away, fills again one by one. So a smaller number
// counts only when all have had time to sign in again.
func (m *Membership) resize(n int) {
	if n < m.inRegister {
		m.fewerSince = m.clock()
	}
	m.inRegister = n
	if n > m.Size() || m.clock().Sub(m.fewerSince) >= registrationLives {
		m.size.Store(int64(n))
	}
}

func (m *Membership) logFailure(err error) {
	m.signedIn = false
	if _, due := m.failureLines.Due(m.clock(), logEvery); due {
		m.log.Warn("could not sign in to the register of daemons; it is tried again", "error", err)
	}
}

func (m *Membership) logRefusal(conflict conflictError) {
	if _, due := m.conflictLines.Due(m.clock(), logEvery); due {
		m.log.Error("this daemon must not serve", "error", conflict)
	}
}

func (m *Membership) watchRules(daemons []Daemon) {
	if m.rulesWatch.due(m.clock(), daemons) {
		m.log.Warn("daemons that share a prefix have different rules; together they may admit more than each of them says",
			"prefix", m.register.Redis.Prefix(), "rules", RulesDiffer(daemons))
	}
}

// signOut removes the registration, so that the others need not wait until it
// expires.
func (m *Membership) signOut(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), signOutTimeout)
	defer cancel()
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.register.call(ctx, leave, m.caller(m.self)); err != nil {
		m.log.Debug("could not sign out of the register of daemons", "error", err)
	}
}
