// Package filestore keeps assignments for one daemon: in a file, so that nothing is lost
// in a restart, or only in memory. It imports assign.
//
// One transaction contains the assignments and the records of a call; then the table
// changes, the store quiesces, and the call returns. Without a path there is no file, and
// everything else is the same.
package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
)

// Defaults of Options.
const (
	DefaultMaxRecords     = 100_000
	DefaultMaxAssignments = 1_000_000
)

// sweepEvery is how often what has ended is removed.
const sweepEvery = time.Minute

// Options of a Store.
type Options struct {
	// Path is the path of the file, which the first change creates if it does not exist,
	// along with its folder. Without it nothing survives a restart.
	Path string
	// MaxRecords is how many records of changes are kept; the oldest are removed; 0 means
	// DefaultMaxRecords.
	MaxRecords int
	// MaxAssignments is how many assignments there may be; 0 means
	// DefaultMaxAssignments.
	MaxAssignments int
	// Hooks may lack either.
	Hooks assign.Hooks
	// Log gets a line when what has ended cannot be removed, and when the file could not
	// be created; nil means no log.
	Log *slog.Logger
	// Clock replaces the clock, in microseconds since the Unix epoch, in tests.
	Clock func() int64
}

// Store is an assign.Store of one daemon.
type Store struct {
	table    *assign.Table
	keeper   keeper
	hooks    assign.Hooks
	path     string
	max      int
	log      *slog.Logger
	clock    func() int64
	watchers assign.Watchers

	loaded atomic.Bool

	// mu is held during a change, and guards last.
	mu   sync.Mutex
	last uint64 // ID of the newest record, and thus the newest ETag
}

var _ assign.Store = (*Store)(nil)

// keeper keeps assignments and records.
type keeper interface {
	// load calls put for each assignment until it fails, and returns the ID of the newest
	// record, or 0.
	load(put func(*assign.Assignment) error) (last uint64, _ error)
	// keep makes all of a change or none of it.
	keep(c *commit) error
	// records calls each for the records before an ID, newest first, until it returns
	// false.
	records(before uint64, each func(id uint64, r assign.Record) bool) error
	close() error
}

// commit is what changes together.
type commit struct {
	// puts maps a subject's text to its new assignment; nil removes it.
	puts    map[string]*assign.Assignment
	records []assign.Record
	first   uint64 // ID of the first of records; the others follow
}

// Open is New followed by Load.
func Open(o Options) (*Store, error) {
	s, err := New(o)
	if err != nil {
		return nil, err
	}
	if err := s.Load(context.Background()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// New opens a store, which Load must then load. It fails if another daemon has the file
// open, or if it is not a file of assignments.
func New(o Options) (*Store, error) {
	s := &Store{
		table: assign.NewTable(),
		hooks: o.Hooks,
		path:  o.Path,
		max:   cmp.Or(o.MaxAssignments, DefaultMaxAssignments),
		log:   o.Log,
		clock: o.Clock,
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.clock == nil {
		start := time.Now()
		s.clock = func() int64 { return start.Add(time.Since(start)).UnixMicro() }
	}
	maxRecords := cmp.Or(o.MaxRecords, DefaultMaxRecords)
	s.keeper = &memory{max: maxRecords}
	if o.Path != "" {
		k, err := openLate(o.Path, maxRecords)
		if err != nil {
			return nil, inFile(o.Path, err)
		}
		s.keeper = k
		if l, ok := k.(*late); ok {
			s.warnOfPlace(l)
		}
	}
	return s, nil
}

func inFile(path string, err error) error { return fmt.Errorf("assignments file %s: %w", path, err) }

// Load loads everything that the store keeps. It fails if that cannot be read, if there
// is more than MaxAssignments, or if ctx ends first.
func (s *Store) Load(ctx context.Context) error {
	kept := 0
	last, err := s.keeper.load(func(a *assign.Assignment) error {
		if kept++; kept <= s.max {
			s.table.Put(a)
		}
		return ctx.Err()
	})
	if err == nil && kept > s.max {
		err = fmt.Errorf("it has %d assignments, and assignments.max is %d: raise that", kept, s.max)
	}
	if err != nil {
		return inFile(s.path, err)
	}
	s.mu.Lock()
	s.last = last
	s.mu.Unlock()
	s.loaded.Store(true)
	return nil
}

// warnOfPlace warns early that the first change will be refused. A daemon to which nobody
// assigns anything does not need the file, so it starts.
func (s *Store) warnOfPlace(l *late) {
	if err := l.lacksPlace(); err != nil {
		s.log.Warn("nothing can be assigned: the file of assignments cannot be made; set assignments.path to one that can, or to nothing, and a restart forgets what is assigned", "path", l.path, "error", err)
	}
}

// Table implements assign.Store.
func (s *Store) Table() *assign.Table { return s.table }

// Loaded implements assign.Store.
func (s *Store) Loaded() bool { return s.loaded.Load() }

// errNotLoaded says that a change must wait for Load.
var errNotLoaded = fmt.Errorf("assignments: they are not loaded yet, and %w", assign.ErrNothingChanged)

// Apply implements assign.Store. It fails, with nothing changed, if a change is invalid
// or the file cannot be written.
func (s *Store) Apply(_ context.Context, changes []assign.Change, _ ...assign.MaxWait) (assign.Applied, error) {
	if !s.Loaded() {
		return unknown(changes), errNotLoaded
	}
	for i := range changes {
		if err := changes[i].Check(); err != nil {
			return unknown(changes), fmt.Errorf("change %d: %w", i, err)
		}
	}
	results, err := s.change(changes)
	if err != nil {
		return unknown(changes), err
	}
	if s.hooks.Quiesce != nil {
		s.hooks.Quiesce()
	}
	return assign.Applied{Results: results}, nil
}

func unknown(changes []assign.Change) assign.Applied {
	return assign.Applied{Results: make([]assign.Result, len(changes))}
}

func (s *Store) change(changes []assign.Change) ([]assign.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	c := commit{puts: make(map[string]*assign.Assignment), first: s.last + 1}
	results := make([]assign.Result, len(changes))
	held := s.table.Len()
	for i := range changes {
		results[i] = s.decide(&changes[i], &c, &held, now)
	}
	if err := s.commit(&c); err != nil {
		return nil, err
	}
	return results, nil
}

// decide adds a change to c, and returns its result. held is the number of assignments.
func (s *Store) decide(change *assign.Change, c *commit, held *int, now int64) assign.Result {
	a := &change.Assignment
	text := a.Text()
	stored, changed := c.puts[text]
	if !changed {
		stored = s.table.Get(a.Subject)
	}
	before, after, outcome := change.Apply(stored, now)
	if outcome == assign.Created && stored == nil && *held >= s.max {
		outcome, after = assign.Full, before
	}
	r := assign.Record{Moment: now, Kind: assign.Assigned, By: a.By, Reason: a.Reason, Subject: a.Subject, Before: before}
	switch outcome {
	case assign.Created, assign.Replaced:
		after.At, after.ETag = now, strconv.FormatUint(c.first+uint64(len(c.records)), 10)
		if stored == nil {
			*held++
		}
		c.puts[text], r.After = after, after
	case assign.Deleted:
		*held--
		c.puts[text], r.Kind = nil, assign.Unassigned
	default:
		return assign.Result{Outcome: outcome, Before: before, After: after}
	}
	c.records = append(c.records, r)
	return assign.Result{Outcome: outcome, Before: before, After: r.After}
}

// commit keeps a change, puts it into the table and tells the watchers.
func (s *Store) commit(c *commit) error {
	if len(c.records) == 0 {
		return nil
	}
	if err := s.keeper.keep(c); err != nil {
		return fmt.Errorf("assignments: %w", err)
	}
	s.last += uint64(len(c.records))
	for i, r := range c.records {
		switch r.Kind {
		case assign.Assigned:
			s.table.Put(r.After)
		case assign.Unassigned:
			s.table.Delete(r.Subject, "")
		}
		r.ID = strconv.FormatUint(c.first+uint64(i), 10)
		s.watchers.Tell(r)
	}
	return nil
}

// Reset implements assign.Store. The states are in memory, so only the hook forgets them.
func (s *Store) Reset(_ context.Context, r assign.Reset, _ ...assign.MaxWait) (assign.Forgotten, error) {
	if !s.Loaded() {
		return assign.Forgotten{}, errNotLoaded
	}
	done := assign.Forgotten{States: len(r.Keys)}
	if s.hooks.Counted != nil {
		done.States = s.hooks.Counted(r.Keys)
	}
	if r.OnlyCounted && done.States == 0 {
		return done, nil
	}
	s.mu.Lock()
	r.Record.Kind, r.Record.Moment = assign.WasReset, s.clock()
	err := s.commit(&commit{records: []assign.Record{r.Record}, first: s.last + 1})
	s.mu.Unlock()
	if err != nil {
		return assign.Forgotten{}, err
	}
	if s.hooks.Quiesce != nil {
		s.hooks.Quiesce()
	}
	if s.hooks.Forget != nil {
		s.hooks.Forget(r.Keys)
	}
	return done, nil
}

// maxScanned bounds the records looked at for one page, some 0.2 s.
const maxScanned = 5_000

// Records implements assign.Store. If few of many are selected, a page may have fewer
// records than allowed without being the last.
func (s *Store) Records(_ context.Context, q assign.RecordQuery) (found []assign.Record, next string, _ error) {
	before := ^uint64(0)
	if q.After != "" {
		id, err := strconv.ParseUint(q.After, 10, 64)
		if err != nil {
			return nil, "", assign.ErrPageToken
		}
		before = id
	}
	scanned, last := 0, uint64(0)
	err := s.keeper.records(before, func(id uint64, r assign.Record) bool {
		chosen := q.Chooses(&r)
		if scanned == maxScanned || chosen && len(found) == q.Max {
			next = strconv.FormatUint(last, 10)
			return false
		}
		scanned++
		last = id
		if !chosen {
			return true
		}
		r.ID = strconv.FormatUint(id, 10)
		found = append(found, r)
		return true
	})
	if err != nil {
		return nil, "", fmt.Errorf("assignments: %w", err)
	}
	return found, next, nil
}

// Watch implements assign.Store.
func (s *Store) Watch(ctx context.Context, tell func(assign.Record) bool) error {
	return s.watchers.Watch(ctx, tell)
}

// Run implements assign.Store: it removes what has ended, once Load has loaded it.
func (s *Store) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(sweepEvery/2 + rand.N(sweepEvery)):
		}
		if err := s.Sweep(); err != nil {
			s.log.Warn("what has ended could not be removed; it is tried again", "error", err)
		}
	}
}

// Sweep removes what has ended.
func (s *Store) Sweep() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	c := commit{puts: make(map[string]*assign.Assignment), first: s.last + 1}
	var ended []*assign.Assignment
	for a := range s.table.Ended(now) {
		c.puts[a.Text()] = nil
		ended = append(ended, a)
	}
	if len(ended) == 0 {
		return nil
	}
	if err := s.keeper.keep(&c); err != nil {
		return fmt.Errorf("assignments: %w", err)
	}
	for _, a := range ended {
		s.table.Delete(a.Subject, a.ETag)
	}
	return nil
}

// Close implements assign.Store.
func (s *Store) Close() error { return s.keeper.close() }
