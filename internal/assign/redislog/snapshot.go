package redislog

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
)

// A snapshot is a local file of the daemon with the assignments and how far it had
// followed their changes. A daemon that starts goes on from there, even if Redis has lost
// everything. It is replaced as a whole, some time after changes.
//
// It consists of a line with its head as JSON, a line for each assignment as Redis has it, and
// snapshotEnd.

const (
	snapshotFormat = "ratelimitd assignments 1"
	snapshotEnd    = "end"
	// snapshotShare is how many times as long as it took there is no other snapshot.
	snapshotShare = 20
	// maxSnapshotLine bounds a line, in bytes.
	maxSnapshotLine = 1 << 20
)

// SnapshotHead is what a snapshot says about itself.
type SnapshotHead struct {
	Format string `json:"format"`
	// Where is Options.Where.
	Where   string    `json:"where"`
	SavedAt time.Time `json:"saved_at"`
	// Filled is what Redis had as idField, At the last record that was followed, and Has
	// the newest change.
	Filled string `json:"filled"`
	At     string `json:"at"`
	Has    string `json:"has"`
}

// keepSnapshots writes snapshots while there are changes, until ctx ends.
func (s *Store) keepSnapshots(ctx context.Context) {
	written, wait := "", s.o.Every
	for isLast := false; !isLast; {
		isLast = !pause(ctx, wait)
		began, at := time.Now(), s.Change()
		if at == written || !s.Loaded() {
			continue
		}
		if err := s.writeSnapshot(); err == nil {
			written = at
		} else if _, due := s.snapshotLines.Due(began, logEvery); due {
			s.o.Log.Error("redis: the snapshot of assignments cannot be written; it is tried again", "path", s.o.CachePath, "error", err)
		}
		wait = max(s.o.Every, snapshotShare*time.Since(began))
	}
}

// writeSnapshot replaces the snapshot. The table may be newer than the head says: following
// changes again does no harm.
func (s *Store) writeSnapshot() error {
	s.mu.Lock()
	head := SnapshotHead{Format: snapshotFormat, Where: s.o.Where, SavedAt: time.Now().UTC(), Filled: s.filled, At: s.at.String(), Has: s.has.String()}
	s.mu.Unlock()
	f, err := os.CreateTemp(filepath.Dir(s.o.CachePath), filepath.Base(s.o.CachePath)+".*")
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 64<<10)
	err = json.NewEncoder(w).Encode(head)
	for a := range s.table.All() {
		fmt.Fprintln(w, encodeValue(a))
	}
	fmt.Fprintln(w, snapshotEnd)
	err = errors.Join(err, w.Flush(), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), s.o.CachePath)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// loadSnapshot fills the table from the snapshot, so that Redis is followed from there on.
func (s *Store) loadSnapshot() {
	if s.o.CachePath == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	head, err := ReadSnapshot(s.o.CachePath, s.o.Where, s.admit)
	at, err1 := parseID(head.At)
	has, err2 := parseID(head.Has)
	switch err = cmp.Or(err, err1, err2); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		for a := range s.table.All() {
			s.table.Delete(a.Subject, "")
		}
		kept := s.o.CachePath + ".unused"
		s.o.Log.Error("redis: the snapshot of assignments is not used; it is kept beside the next one", "path", kept, "error", errors.Join(err, os.Rename(s.o.CachePath, kept)))
	default:
		s.setPosition(at)
		s.isBegun, s.has, s.filled = true, has, head.Filled
		s.hasSnapshot.Store(true)
		s.o.Log.Info("redis: assignments are those of the snapshot until Redis says more", "path", s.o.CachePath, "assignments", s.table.Len(), "saved_at", head.SavedAt)
	}
}

// ReadSnapshot reads a snapshot, and calls each for each assignment. If it fails, each may
// have got some of them. where, if not empty, is where it must be from.
func ReadSnapshot(path, where string, each func(*assign.Assignment)) (head SnapshotHead, _ error) {
	f, err := os.Open(path)
	if err != nil {
		return head, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxSnapshotLine)
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &head) != nil || head.Format != snapshotFormat {
		return head, errors.New("it is no snapshot of assignments")
	}
	if where != "" && where != head.Where {
		return head, fmt.Errorf("it is of another Redis, or of another redis.prefix: %s", head.Where)
	}
	for lines.Scan() {
		if lines.Text() == snapshotEnd {
			return head, nil
		}
		a, _, err := decodeValue(lines.Text())
		if err != nil {
			return head, err
		}
		each(a)
	}
	return head, cmp.Or(lines.Err(), io.ErrUnexpectedEOF)
}
