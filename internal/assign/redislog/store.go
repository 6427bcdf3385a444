package redislog

import (
	"cmp"
	"context"
	_ "embed" // the scripts
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/logthin"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
)

//go:embed append.lua
var appendSource string

//go:embed change.lua
var changeSource string

//go:embed restore.lua
var restoreSource string

//go:embed reset.lua
var resetSource string

//go:embed sweep.lua
var sweepSource string

var (
	changeScript  = redisconn.NewScript(appendSource + changeSource)
	restoreScript = redisconn.NewScript(appendSource + restoreSource)
	resetScript   = redisconn.NewScript(resetSource)
	sweepScript   = redisconn.NewScript(sweepSource)
)

// Options of a Store.
type Options struct {
	// Name is this daemon's name in records of what it put back.
	Name string
	// MaxRecords is roughly how many records of changes are kept; 0 means 100,000.
	MaxRecords int
	// MaxAssignments is how many assignments there may be; 0 means 1,000,000. Daemons that make some at the same time may exceed it by these. This one has no
	// more in memory, except for blocks: see Lacks.
	MaxAssignments int
	// CachePath is the file in which this daemon keeps a snapshot of the assignments, for
	// a start after Redis has lost them; empty means none. Where says which Redis it
	// belongs to: a snapshot of another one is not used.
	CachePath, Where string
	// Hooks.Forget may be nil. It is called when a reset is followed.
	Hooks assign.Hooks
	// Log gets a line when Redis does not answer or has lost something, and when
	// something in it cannot be read; nil means no log.
	Log *slog.Logger
	// Every is how often to look for changes, at most a second; 0 means a second.
	Every time.Duration
	// Clock replaces the clock of Redis, in microseconds since the Unix epoch. It is for
	// tests; production leaves it nil.
	Clock func() int64
}

// Store is an assign.Store in Redis.
type Store struct {
	redis *redisconn.Conn
	o     Options
	table *assign.Table
	// assigned and changes are the keys of the hash and of the stream, and restoring that
	// of who puts back.
	assigned, changes, restoring string
	watchers                     assign.Watchers

	loaded, hasSnapshot, isForbidden, wasWhole atomic.Bool
	// position is at, for other goroutines.
	position atomic.Pointer[string]
	// others and blocks are what LeftOut returns; lost and restored are what Losses does.
	others, blocks, lost, restored atomic.Int64

	// mu is held to change the table, and guards the fields below.
	mu sync.Mutex
	// isBegun says that the table was as of at, from Redis or a snapshot, and filled is
	// what Redis then had as idField.
	isBegun bool
	filled  string
	// at is the last record that the table is up to date with, and has the newest change
	// in the table: it is before at if that is what a daemon has put back.
	at, has changeID
	// recent are the last changes that were followed, oldest first.
	recent []recentChange
	// missing is what findLost returned, until the load is complete.
	missing map[string]string

	failureLines, foreignLines, fullLines, snapshotLines logthin.Thinner
}

var _ assign.Store = (*Store)(nil)

// New returns a store on the servers that conn reaches. conn belongs to the caller, who
// closes it after Run has ended. Many changes take longer than a decision may: the
// timeout of conn should be a second or more, so it is not the one of the limits.
func New(conn *redisconn.Conn, o Options) *Store {
	o.MaxRecords = cmp.Or(o.MaxRecords, 100_000)
	o.MaxAssignments = cmp.Or(o.MaxAssignments, 1_000_000)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Every = cmp.Or(o.Every, time.Second)
	head := conn.Prefix() + "{~assign}~"
	return &Store{redis: conn, o: o, table: assign.NewTable(), assigned: head + "assigned", changes: head + "changes", restoring: head + "restoring"}
}

// Table implements assign.Store.
func (s *Store) Table() *assign.Table { return s.table }

// Loaded implements assign.Store.
func (s *Store) Loaded() bool { return s.loaded.Load() }

// HasSnapshot reports whether the table began with a snapshot, so that its content is in
// force before the store is Loaded.
func (s *Store) HasSnapshot() bool { return s.hasSnapshot.Load() }

// IsForbidden reports whether the Redis user may not do what assignments need, so that
// they are not loaded until someone grants it the rights.
func (s *Store) IsForbidden() bool { return s.isForbidden.Load() }

// Change returns the ID of the last record that this daemon has followed, or "".
func (s *Store) Change() string {
	if at := s.position.Load(); at != nil {
		return *at
	}
	return ""
}

// Losses returns how many changes this daemon had that Redis has lost, and how many
// assignments it has put back.
func (s *Store) Losses() (changes, restored int64) { return s.lost.Load(), s.restored.Load() }

// Watch implements assign.Store. It skips records from before this daemon had to load the
// assignments again.
func (s *Store) Watch(ctx context.Context, each func(assign.Record) bool) error {
	return s.watchers.Watch(ctx, each)
}

// Close implements assign.Store. The connection belongs to the caller.
func (s *Store) Close() error { return nil }

// appendRecords runs a script that appends records. known is the newest change that this daemon
// has.
func (s *Store) appendRecords(ctx context.Context, sc redisconn.Script, known string, args ...any) *redis.Cmd {
	clock := ""
	if s.o.Clock != nil {
		clock = fmt.Sprint(s.o.Clock())
	}
	return s.redis.Run(ctx, sc, []string{s.assigned, s.changes, s.restoring}, slices.Concat([]any{clock, s.o.MaxRecords, known}, args)...)
}

// now is the time of this machine, in microseconds since the Unix epoch.
func (s *Store) now() int64 {
	if s.o.Clock == nil {
		return time.Now().UnixMicro()
	}
	return s.o.Clock()
}

func wrap(err error) error { return fmt.Errorf("redis: assignments: %w", err) }

// logEvery is the interval of log lines of one kind.
const logEvery = time.Minute

// logFailure logs that Redis did not answer, or refused; nil that it answered.
func (s *Store) logFailure(ctx context.Context, err error) {
	s.isForbidden.Store(err != nil && redis.HasErrorPrefix(err, "NOPERM"))
	if err == nil || ctx.Err() != nil || errors.Is(err, errLost) {
		return
	}
	s.redis.ReloadAfter(ctx, err)
	if _, due := s.failureLines.Due(time.Now(), logEvery); due {
		s.o.Log.Warn("redis: changes of assignments cannot be followed; those that are known stay in force, and it is tried again", "error", s.redis.Explain(redisconn.AnyNode, err))
	}
}

// logForeign logs that something in Redis is not ours, or is damaged.
func (s *Store) logForeign(key, field string, err error) {
	if n, due := s.foreignLines.Due(time.Now(), logEvery); due {
		s.o.Log.Warn("redis: something among the assignments cannot be read, and is passed over", "key", key, "field", fmt.Sprintf("%.200s", field), "error", fmt.Sprintf("%.200v", err), "more", n)
	}
}

// pause waits, and reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
