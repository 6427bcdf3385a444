// Package filestore keeps assignments for one daemon: in a file, so that nothing is lost
// in a restart, or only in memory. It imports assign.
//
// One transaction contains the assignments and the records of a call; then the table
// changes, and the call returns. Without a path there is no file, and everything else is
// the same.
package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
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
	// Optional keeps them in memory if the folder does not exist or may not be written, or
	// if another daemon has the file. Otherwise it opens and so holds the file at once.
	Optional bool
	// MaxRecords is how many records of changes are kept; the oldest are removed; 0 means
	// DefaultMaxRecords.
	MaxRecords int
	// MaxAssignments is how many assignments there may be; 0 means
	// DefaultMaxAssignments.
	MaxAssignments int
	// Hooks may lack either.
	Hooks assign.Hooks
	// Log gets a line about where Optional keeps them, and when what has ended cannot be
	// removed; nil means no log.
	Log *slog.Logger
	// Clock replaces the clock, in microseconds since the Unix epoch, in tests.
	Clock func() int64
}

// Store is an assign.Store of one daemon.
type Store struct {
	options  Options
	table    *assign.Table
	watchers assign.Watchers
	loaded   atomic.Bool

	// file is nil for a store in memory, whose records are in kept.
	file *file

	// mu is held during a change, and guards the fields below.
	mu   sync.Mutex
	last uint64 // number of the newest record
	kept []assign.Record
}

var _ assign.Store = (*Store)(nil)

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
	o.MaxRecords = cmp.Or(o.MaxRecords, DefaultMaxRecords)
	o.MaxAssignments = cmp.Or(o.MaxAssignments, DefaultMaxAssignments)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Clock == nil {
		start := time.Now()
		o.Clock = func() int64 { return start.Add(time.Since(start)).UnixMicro() }
	}
	s := &Store{options: o, table: assign.NewTable()}
	if o.Path == "" {
		return s, nil
	}
	var err error
	s.file, err = openFile(o)
	switch {
	case err != nil && o.Optional && isUnavailable(err):
		s.file = nil
		o.Log.Info("assignments are kept in memory, and a restart forgets them", "path", o.Path, "reason", err)
	case err != nil:
		return nil, s.inFile(errors.Join(err, s.Close()))
	case o.Optional:
		o.Log.Info("assignments are kept in a file", "path", o.Path)
	}
	return s, nil
}

func (s *Store) inFile(err error) error {
	return fmt.Errorf("assignments file %s: %w", s.options.Path, err)
}

// Load loads everything that the store keeps. It fails if that cannot be read, or if ctx
// ends first.
func (s *Store) Load(ctx context.Context) error {
	last, err := s.file.load(func(a *assign.Assignment) error {
		s.table.Put(a)
		return ctx.Err()
	})
	if err != nil {
		return s.inFile(err)
	}
	s.last = last // nothing changes it before the store is loaded
	s.loaded.Store(true)
	return nil
}

// Table implements assign.Store.
func (s *Store) Table() *assign.Table { return s.table }

// Loaded implements assign.Store.
func (s *Store) Loaded() bool { return s.loaded.Load() }

// errNotLoaded says that a change must wait for Load.
var errNotLoaded = fmt.Errorf("assignments: they are not loaded yet, and %w", assign.ErrNothingChanged)

// Apply implements assign.Store. It fails, with nothing changed, if a change is invalid
// or the file cannot be written.
func (s *Store) Apply(_ context.Context, changes []assign.Change) ([]assign.Result, error) {
	results, unknown := make([]assign.Result, len(changes)), make([]assign.Result, len(changes))
	if !s.Loaded() {
		return unknown, errNotLoaded
	}
	for i := range changes {
		if err := changes[i].Check(); err != nil {
			return unknown, fmt.Errorf("change %d: %w", i, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.newCommit()
	for i := range changes {
		results[i] = s.decide(&changes[i], c)
	}
	if err := s.commit(c); err != nil {
		return unknown, err
	}
	return results, nil
}

// commit is what changes together.
type commit struct {
	now int64
	// puts are by the texts of subjects. Those that say nothing remove.
	puts map[string]*assign.Assignment
	// added is how many more assignments there will be.
	added int
	// records are numbered from first; their IDs are these numbers.
	records []assign.Record
	first   uint64
}

func (s *Store) newCommit() *commit {
	return &commit{now: s.options.Clock(), puts: make(map[string]*assign.Assignment), first: s.last + 1}
}

// record adds a record, and gives it and what it made the next number as ID.
func (c *commit) record(r assign.Record) {
	r.Moment, r.ID = c.now, strconv.FormatUint(c.first+uint64(len(c.records)), 10)
	if r.After != nil {
		r.After.Stamp(r.ID, c.now)
	}
	c.records = append(c.records, r)
}

// decide adds a change to c, and returns its result.
func (s *Store) decide(change *assign.Change, c *commit) assign.Result {
	text := change.Text()
	held := c.puts[text]
	if held == nil {
		held = s.table.Get(change.Subject)
	}
	isNew := held == nil || held.IsEmpty()
	before, after, outcome := change.Apply(held, c.now)
	result := assign.Result{Outcome: outcome, Before: before, After: after}
	switch {
	case outcome == assign.Created && isNew && s.table.Len()+c.added >= s.options.MaxAssignments:
		return assign.Result{Outcome: assign.Full}
	case outcome == assign.Created && isNew:
		c.puts[text] = after
		c.added++
	case outcome == assign.Created || outcome == assign.Replaced:
		c.puts[text] = after
	case outcome == assign.Deleted:
		c.puts[text] = &assign.Assignment{Subject: change.Subject}
		c.added--
	default:
		return result
	}
	c.record(change.Record(before, after))
	return result
}

// commit keeps a commit, puts it into the table and notifies the watchers.
func (s *Store) commit(c *commit) error {
	if len(c.puts) == 0 && len(c.records) == 0 {
		return nil
	}
	if s.file == nil {
		// Up to twice as many are held, so that they are seldom moved.
		if s.kept = append(s.kept, c.records...); len(s.kept) > 2*s.options.MaxRecords {
			s.kept = slices.Clone(s.kept[len(s.kept)-s.options.MaxRecords:])
		}
	} else if err := s.file.keep(c); err != nil {
		return fmt.Errorf("assignments: %w", err)
	}
	s.last += uint64(len(c.records))
	for _, a := range c.puts {
		if a.IsEmpty() {
			s.table.Delete(a.Subject, "")
		} else {
			s.table.Put(a)
		}
	}
	for _, r := range c.records {
		s.watchers.Notify(r)
	}
	return nil
}

// Reset implements assign.Store. The states are in memory, so the hook forgets them.
func (s *Store) Reset(_ context.Context, r assign.Reset) (states int, _ error) {
	if !s.Loaded() {
		return 0, errNotLoaded
	}
	states = len(r.Keys)
	if s.options.Hooks.Counted != nil {
		states = s.options.Hooks.Counted(r.Keys)
	}
	if r.OnlyCounted && states == 0 {
		return 0, nil
	}
	s.mu.Lock()
	c := s.newCommit()
	c.record(r.Record)
	err := s.commit(c)
	s.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if s.options.Hooks.Forget != nil {
		s.options.Hooks.Forget(r.Keys)
	}
	return states, nil
}

// maxScanned bounds the records read for one page, some 0.2 s.
const maxScanned = 5_000

// Records implements assign.Store. If few of many are selected, a page may have fewer
// records than allowed without being the last.
func (s *Store) Records(_ context.Context, q assign.RecordQuery) (found []assign.Record, next string, _ error) {
	before := uint64(math.MaxUint64)
	var err error
	if q.After != "" {
		if before, err = strconv.ParseUint(q.After, 10, 64); err != nil {
			return nil, "", assign.ErrPageToken
		}
	}
	scanned, last := 0, ""
	err = s.records(before, func(r assign.Record) bool {
		isSelected := q.Selects(&r)
		if scanned == maxScanned || isSelected && len(found) == q.Max {
			next = last
			return false
		}
		scanned++
		last = r.ID
		if isSelected {
			found = append(found, r)
		}
		return true
	})
	if err != nil {
		return nil, "", fmt.Errorf("assignments: %w", err)
	}
	return found, next, nil
}

// records calls each for the records before the one with a number, newest first, until it
// returns false.
func (s *Store) records(before uint64, each func(assign.Record) bool) error {
	if s.file != nil {
		return s.file.records(before, each)
	}
	s.mu.Lock()
	kept, number := s.kept, s.last
	s.mu.Unlock()
	for i := len(kept) - 1; i >= max(0, len(kept)-s.options.MaxRecords); i-- {
		if number < before && !each(kept[i]) {
			break
		}
		number--
	}
	return nil
}

// Watch implements assign.Store.
func (s *Store) Watch(ctx context.Context, each func(assign.Record) bool) error {
	return s.watchers.Watch(ctx, each)
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
			s.options.Log.Warn("what has ended could not be removed; it is tried again", "error", err)
		}
	}
}

// Sweep removes what has ended.
func (s *Store) Sweep() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.newCommit()
	for a := range s.table.Ended(c.now) {
		c.puts[a.Text()] = &assign.Assignment{Subject: a.Subject}
	}
	return s.commit(c)
}

// Close implements assign.Store.
func (s *Store) Close() error { return s.file.close() }
