package redislog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/logthin"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
)

// Defaults of Options.
const (
	DefaultMaxRecords     = 100_000
	DefaultMaxAssignments = 1_000_000
)

// Old are daemons of earlier versions, by their addresses.
type Old struct {
	// NoParts only read form 1 of assignments (see change.lua), and NoCalendar no form of
	// those with a calendar. The former are among the latter.
	NoParts, NoCalendar []string
}

// Options of a Store.
type Options struct {
	// ID is the ID of this daemon in the register.
	ID string
	// Name is this daemon's name in records of what it put back.
	Name string
	// Awaited returns the daemons that may decide by what they had before it was called;
	// nil means that this one is alone.
	Awaited func(context.Context) (Awaited, error)
	// CaughtUp returns nil once this daemon has caught up (see Store.CatchUp) since it
	// may last have missed a change; nil means that it never misses any.
	CaughtUp func(context.Context) error
	// Old returns the daemons of the register that cannot read all assignments; nil means
	// that there are none. Changes that one of them cannot read are refused as long as it
	// returns any, or fails.
	Old func(context.Context) (Old, error)
	// HashTags is the number of the limits' hash tags, on which all daemons of a register
	// agree, and Tags returns the tags for a number.
	HashTags int
	Tags     func(n int) []string
	// MaxRecords is roughly how many records of changes are kept, over all tags, but at
	// least some hundred for each tag; 0 means DefaultMaxRecords.
	MaxRecords int
	// MaxAssignments is how many assignments there may be; 0 means DefaultMaxAssignments.
	// Daemons that make some at the same time may exceed it by these. This one has no
	// more in memory, except for blocks: see Lacks.
	MaxAssignments int
	// CachePath is the file in which this daemon keeps a snapshot of the assignments, for
	// a start after Redis has lost them; empty means none. Where says which Redis it
	// belongs to: a snapshot of another one is not used.
	CachePath string
	Where     Where
	// Hooks may lack either. They are called by Run.
	Hooks assign.Hooks
	// Log gets a line when Redis does not answer, and when something in it cannot be
	// read; nil means no log.
	Log *slog.Logger
	// Clock replaces the clock of Redis, in microseconds since the Unix epoch. It is for
	// tests; production leaves it nil.
	Clock func() int64
}

// Store is an assign.Store in Redis.
type Store struct {
	redis    *redisconn.Conn
	o        Options
	table    *assign.Table
	tags     []*tag
	byName   map[string]*tag
	loaded   atomic.Bool
	doorbell doorbell
	watchers assign.Watchers
	late     late

	// failure is why Run currently cannot follow.
	failure atomic.Pointer[error]
	// lacking is what is left out, and wasWhole whether that was ever nothing.
	lacking  atomic.Pointer[leftOut]
	wasWhole atomic.Bool
	// mended is when tags were last loaded again because of what was left out; Run uses
	// it.
	mended time.Time

	// losses and restored are the numbers returned by Losses.
	losses, restored atomic.Uint64
	// positions is how far the table is.
	positions atomic.Pointer[map[string]position]

	// catchUps is held by CatchUp, which alone uses the following fields: whether it ever
	// succeeded, and how many losses there were by then.
	catchUps     sync.Mutex
	hasCaughtUp  bool
	lossesBefore uint64
	// snapshotAt is when the snapshot that the table began with was made; zero without
	// one. hasSnapshot says so to others than Run.
	snapshotAt  time.Time
	hasSnapshot atomic.Bool

	failureLines, foreignLines, fullLines, lostLines, lossLines, snapshotLines, rightsLines logthin.Thinner
}

var _ assign.Store = (*Store)(nil)

// tag is what the store has of one hash tag.
type tag struct {
	name  string
	index int
	// assigned is the key of the hash, changes that of the stream, and seen that of a
	// hash with the IDs that the daemons have in force.
	assigned, changes, seen string

	// Only Run uses the fields below.

	isLoaded bool
	// isBegun says that the table may have some of it, perhaps from a load that failed.
	isBegun bool
	// at is the last record that the table is up to date with, and acked the last one
	// acknowledged as such.
	at, acked streamID
	// has is the last change that the table has. If a daemon has put back since, it is
	// before at: the record of that is new, but what was put back is not.
	has     streamID
	leftOut leftOut
	// recent holds the IDs of the last records that were followed, without a gap, oldest
	// first. There are at most 2*maxRecent.
	recent []streamID
	// epoch is what the hash had beside the assignments, empty if there never were any;
	// isLost says that its absence was reported.
	epoch  string
	isLost bool
	// isLacking says that Redis lacked something of it at the last look.
	isLacking bool
	// emptySince is since when Redis was seen to have nothing of it that may be lost;
	// zero once it is loaded. Waiting for others then needs no roll call: answers wait
	// until a daemon has loaded everything, so two that load would wait for each other.
	emptySince time.Time
	// emptyLen is how many of its assignments were put back at the last look at it.
	emptyLen int64
	// isFromSnapshot says that Redis has not yet confirmed what the snapshot says.
	isFromSnapshot bool
	// putBackAfter is when a daemon that knows the assignments from a snapshot puts them
	// back, unless another one did.
	putBackAfter time.Time

	// known is at for changes, which continue from there; nil while epoch is empty.
	known atomic.Pointer[streamID]
}

// New returns a store on the servers that conn reaches. conn belongs to the caller, who
// closes it after Run has ended. Many changes take longer than a decision may: the
// timeout of conn should be a second or more, so it is not the one of the limits. New
// only fails on invalid options.
func New(conn *redisconn.Conn, o Options) (*Store, error) {
	if o.ID == "" || o.Tags == nil || o.HashTags < 1 {
		return nil, errors.New("redis: assignments need the daemon's ID and the hash tags of limits")
	}
	o.MaxRecords = cmp.Or(o.MaxRecords, DefaultMaxRecords)
	o.MaxAssignments = cmp.Or(o.MaxAssignments, DefaultMaxAssignments)
	o.Name = cmp.Or(o.Name, o.ID)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{redis: conn, o: o, table: assign.NewTable(), byName: make(map[string]*tag)}
	for i, name := range o.Tags(o.HashTags) {
		t := s.newTag(name)
		t.index = i
		s.tags = append(s.tags, t)
		s.byName[name] = t
	}
	s.doorbell.init(s)
	return s, nil
}

// newTag returns the keys of a hash tag. No key of a limit has a tilde after the tag,
// except that of a ping.
func (s *Store) newTag(name string) *tag {
	head := s.redis.Prefix() + "{" + name + "}~"
	return &tag{name: name, assigned: head + "assigned", changes: head + "changes", seen: head + "seen"}
}

// key returns a key that belongs to no tag of the limits.
func (s *Store) key(name string) string { return s.redis.Prefix() + "{~assign}~" + name }

// tagOf returns the tag of a subject by its text. It is part of the format.
func (s *Store) tagOf(text string) *tag { return s.tags[xxhash.Sum64String(text)%uint64(len(s.tags))] }

// minKeep is more than the changes of a call, so that the daemons can follow each call
// from the one before.
const minKeep = maxPerCall + 100

// keep is roughly how many changes the stream of one tag keeps.
func (s *Store) keep() int { return max(minKeep, s.o.MaxRecords/len(s.tags)) }

// clock is the scripts' argument.
func (s *Store) clock() string {
	if s.o.Clock == nil {
		return ""
	}
	return strconv.FormatInt(s.o.Clock(), 10)
}

// now is the time of this machine, for what Redis then decides by its own clock.
func (s *Store) now() int64 {
	if s.o.Clock == nil {
		return time.Now().UnixMicro()
	}
	return s.o.Clock()
}

// Table implements assign.Store.
func (s *Store) Table() *assign.Table { return s.table }

// Loaded implements assign.Store.
func (s *Store) Loaded() bool { return s.loaded.Load() }

// HasSnapshot reports whether the table began with a snapshot, so that its content is in
// force before the store is Loaded.
func (s *Store) HasSnapshot() bool { return s.hasSnapshot.Load() }

// Watch implements assign.Store. It skips a change that was removed from its stream
// before this daemon could read it.
func (s *Store) Watch(ctx context.Context, tell func(assign.Record) bool) error {
	return s.watchers.Watch(ctx, tell)
}

// Close implements assign.Store. The connection belongs to the caller.
func (s *Store) Close() error { return nil }

func wrap(err error) error { return fmt.Errorf("redis: assignments: %w", err) }

// logEvery is the interval of log lines of one kind.
const logEvery = time.Minute

// logFailure logs that Redis did not answer, or refused.
func (s *Store) logFailure(ctx context.Context, err error) {
	s.redis.ReloadAfter(ctx, err)
	if ctx.Err() != nil {
		return
	}
	s.failure.Store(&err)
	if _, due := s.failureLines.Due(time.Now(), logEvery); due {
		s.o.Log.Warn("redis: changes of assignments cannot be followed; those that are known stay in force, and it is tried again", "error", s.redis.Explain(redisconn.AnyNode, err))
	}
}

// IsForbidden reports whether the Redis user may not do what assignments need, so that
// they are not loaded until someone grants it the rights.
func (s *Store) IsForbidden() bool {
	err := s.failure.Load()
	return err != nil && isForbidden(*err)
}

func isForbidden(err error) bool { return redis.HasErrorPrefix(err, "NOPERM") }

// maxForeign bounds how many bytes of foreign data a log line repeats.
const maxForeign = 512

// logForeign logs that something in Redis is not ours, or is damaged.
func (s *Store) logForeign(where string, err error) {
	if n, due := s.foreignLines.Due(time.Now(), logEvery); due {
		text := err.Error()
		if len(text) > maxForeign {
			text = strings.ToValidUTF8(text[:maxForeign], "") + "..."
		}
		s.o.Log.Warn("redis: something among the assignments cannot be read, and is passed over", "where", where, "error", text, "more", n)
	}
}

// streamID is the ID of a stream entry. Zero is before all.
type streamID struct{ ms, seq uint64 }

func parseID(text string) (streamID, error) {
	ms, seq, ok := strings.Cut(text, "-")
	m, err1 := strconv.ParseUint(ms, 10, 64)
	n, err2 := strconv.ParseUint(seq, 10, 64)
	if !ok || err1 != nil || err2 != nil {
		return streamID{}, fmt.Errorf("%q is not the ID of an entry of a stream", text)
	}
	return streamID{m, n}, nil
}

func (i streamID) String() string {
	return strconv.FormatUint(i.ms, 10) + "-" + strconv.FormatUint(i.seq, 10)
}

func (i streamID) compare(o streamID) int {
	return cmp.Or(cmp.Compare(i.ms, o.ms), cmp.Compare(i.seq, o.seq))
}

// micros is the ID's time in microseconds since the Unix epoch.
func (i streamID) micros() int64 { return int64(i.ms) * 1000 }
