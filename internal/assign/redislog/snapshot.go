package redislog

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
)

// A snapshot is a file beside the daemon with the assignments and how far it had
// followed their changes. With it a daemon that starts goes on from there, also where
// Redis has lost all. It is replaced as a whole, some time after changes.
//
// It is snapshotMagic, a line with its head as JSON, a line for each assignment as
// assign.Encode writes it, and a line with the SHA-256 of all that in hexadecimal.

const (
	snapshotMagic = "ratelimitd assignments 1\n"
	// snapshotEvery is how often a snapshot is made while there are changes, and
	// snapshotShare how many times as long as it takes there is none after it.
	snapshotEvery = time.Second
	snapshotShare = 20
	// maxSnapshotLine bounds a line.
	maxSnapshotLine = 64 << 10
	// awaitOthers is for how long a daemon that has assignments from a snapshot
	// leaves it to others to put them back: as long as a registration lives.
	awaitOthers = 7 * time.Second
)

// snapshotHead is what a snapshot says of itself.
type snapshotHead struct {
	// Where is Options.Where.
	Where    string              `json:"where"`
	HashTags int                 `json:"hash_tags"`
	SavedAt  time.Time           `json:"saved_at"`
	Tags     map[string]position `json:"tags"`
}

// position is how far a daemon has followed the changes of a tag.
type position struct {
	Epoch string `json:"epoch,omitempty"`
	At    string `json:"at"`
	// Has is the last change in it, unless that is At.
	Has string `json:"has,omitempty"`
}

// notePositions has the next snapshot, and answers to calls, say how far the table is.
func (s *Store) notePositions() {
	all := make(map[string]position, len(s.tags))
	for _, t := range s.tags {
		p := position{Epoch: t.epoch, At: t.at.String()}
		if t.has != t.at {
			p.Has = t.has.String()
		}
		all[t.name] = p
	}
	s.positions.Store(&all)
}

// keepSnapshots writes snapshots while there are changes, until ctx ends.
func (s *Store) keepSnapshots(ctx context.Context) {
	var written *map[string]position
	for wait := snapshotEvery; ; {
		isLast := !pause(ctx, wait)
		now := s.positions.Load()
		if now != written && s.Loaded() {
			began := time.Now()
			if err := s.writeSnapshot(*now); err == nil {
				written = now
				s.snapshotLines.Reset()
			} else if _, due := s.snapshotLines.Due(began, logEvery); due {
				s.o.Log.Error("redis: the snapshot of assignments cannot be written; it is tried again", "path", s.o.CachePath, "error", err)
			}
			wait = max(snapshotEvery, snapshotShare*time.Since(began))
		}
		if isLast {
			return
		}
	}
}

// writeSnapshot replaces the snapshot. What is in the table may be newer than the
// positions say: to follow it again does no harm.
func (s *Store) writeSnapshot(at map[string]position) error {
	f, err := os.CreateTemp(filepath.Dir(s.o.CachePath), filepath.Base(s.o.CachePath)+".*")
	if err != nil {
		return err
	}
	err = s.writeSnapshotTo(f, at)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), s.o.CachePath)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func (s *Store) writeSnapshotTo(f io.Writer, at map[string]position) error {
	sum := sha256.New()
	w := bufio.NewWriterSize(io.MultiWriter(f, sum), 64<<10)
	head, err := json.Marshal(snapshotHead{Where: s.o.Where, HashTags: s.o.HashTags, SavedAt: time.Now().UTC(), Tags: at})
	if err != nil {
		return err
	}
	w.WriteString(snapshotMagic)
	w.Write(append(head, '\n'))
	for a := range s.table.All() {
		w.Write(append(assign.Encode(a), '\n'))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%x\n", sum.Sum(nil))
	return err
}

// errOtherRedis says that a snapshot is of another Redis.
var errOtherRedis = errors.New("it is of another Redis, or of another redis.prefix")

// loadSnapshot puts the snapshot into the table, and the tags where it was.
func (s *Store) loadSnapshot() {
	if s.o.CachePath == "" {
		return
	}
	snapshot, err := OpenSnapshot(s.o.CachePath)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		defer snapshot.Close()
		if snapshot.head.Where != s.o.Where {
			s.keepAside(snapshot)
			return
		}
		err = snapshot.Each(func(a *assign.Assignment) { s.admit(s.tagOf(a.Text()), a) })
	}
	for _, t := range s.tags {
		t.isBegun = true // the table may have some of it
	}
	if err != nil {
		s.o.Log.Warn("redis: the snapshot of assignments is not used", "path", s.o.CachePath, "error", err)
		return
	}
	s.goOnFrom(snapshot.head)
	s.snapshotAt = snapshot.SavedAt()
	s.o.Log.Info("redis: assignments are those of the snapshot until Redis says more", "path", s.o.CachePath, "assignments", s.table.Len(), "saved_at", s.snapshotAt)
}

// movedEpoch is the epoch of tags that the snapshot does not have: it had others.
const movedEpoch = "snapshot"

// goOnFrom puts the tags where a snapshot was.
func (s *Store) goOnFrom(head snapshotHead) {
	var newest streamID
	for _, p := range head.Tags {
		if at, err := parseID(p.At); err == nil && at.compare(newest) > 0 {
			newest = at
		}
	}
	for _, t := range s.tags {
		p, known := head.Tags[t.name]
		at, err := parseID(p.At)
		t.at, t.isLoaded = at, known && err == nil && head.HashTags == s.o.HashTags
		t.has = at
		if has, err := parseID(p.Has); err == nil {
			t.has = has
		}
		t.isFromSnapshot = true
		if t.setEpoch(p.Epoch); !t.isLoaded {
			// The assignments are spread over other tags now. Redis has them, or
			// they are lost.
			t.at, t.has = newest, newest
			t.setEpoch(movedEpoch)
		}
		t.noteKnown()
	}
}

// keepAside keeps a snapshot of another Redis beside that of this one, for people.
func (s *Store) keepAside(snapshot *Snapshot) {
	aside := s.o.CachePath + ".other"
	if err := os.Rename(s.o.CachePath, aside); err != nil {
		s.o.Log.Error("redis: the snapshot of assignments is of another Redis, or of another redis.prefix; it is not used, and cannot be kept", "path", s.o.CachePath, "of", snapshot.Where(), "error", err)
		return
	}
	s.o.Log.Warn("redis: the snapshot of assignments is not used, and is kept as "+aside+"; to assign what it has: ratelimitd assignments --export csv --snapshot "+aside+" | ratelimitd assign --from -",
		"path", s.o.CachePath, "error", fmt.Errorf("%w: %s", errOtherRedis, snapshot.Where()))
}

// Snapshot is an open snapshot that is whole.
type Snapshot struct {
	file *os.File
	head snapshotHead
}

// OpenSnapshot opens a snapshot, and reads it to see whether it is whole.
func OpenSnapshot(path string) (_ *Snapshot, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errors.New("it is no file"))
	}
	s := &Snapshot{file: f}
	return s, s.Each(func(*assign.Assignment) {})
}

// Where says which Redis it is of, as Options.Where does.
func (s *Snapshot) Where() string { return s.head.Where }

// SavedAt is when it was made, by the clock of that machine.
func (s *Snapshot) SavedAt() time.Time { return s.head.SavedAt }

// Close closes the file.
func (s *Snapshot) Close() error { return s.file.Close() }

// Each reads it, and calls take for each assignment.
func (s *Snapshot) Each(take func(*assign.Assignment)) error {
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	r := lineReader{r: bufio.NewReaderSize(s.file, maxSnapshotLine), sum: sha256.New()}
	if line, err := r.next(); err != nil || string(line) != snapshotMagic[:len(snapshotMagic)-1] {
		return errors.New("it is no snapshot of assignments")
	}
	line, err := r.next()
	if err == nil {
		err = json.Unmarshal(line, &s.head)
	}
	for err == nil {
		before := r.sum.Sum(nil)
		if line, err = r.next(); err != nil {
			break
		}
		if bytes.Equal(line, fmt.Appendf(nil, "%x", before)) {
			return nil
		}
		var a *assign.Assignment
		if a, err = assign.Decode(line); err == nil {
			take(a)
		}
	}
	return fmt.Errorf("it is torn: %w", err)
}

// lineReader reads lines and sums them up.
type lineReader struct {
	r   *bufio.Reader
	sum hash.Hash
}

// next returns a line without its end, until the next call.
func (r *lineReader) next() ([]byte, error) {
	line, err := r.r.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	r.sum.Write(line)
	return line[:len(line)-1], nil
}
