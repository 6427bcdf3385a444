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
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
)

// A snapshot is a local file of the daemon with the assignments and how far it had
// followed their changes. A daemon that starts continues from there, even if Redis has
// lost everything. It is replaced as a whole, some time after changes.
//
// It consists of snapshotMagic, a line with its head as JSON, a line for each assignment
// as written by assign.Encode, and a line with the SHA-256 of all that in hexadecimal.

const (
	snapshotMagic = "ratelimitd assignments 1\n"
	// snapshotEvery is how often a snapshot is made while there are changes. After each,
	// none is made for at least snapshotShare times as long as it took.
	snapshotEvery = time.Second
	snapshotShare = 20
	// maxSnapshotLine bounds a line.
	maxSnapshotLine = 64 << 10
	// awaitOthers is how long a daemon with assignments from a snapshot leaves it to
	// others to put them back: as long as a registration lives.
	awaitOthers = 7 * time.Second
)

// snapshotHead is what a snapshot says about itself.
type snapshotHead struct {
	// Where is the text of Options.Where.
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

// notePositions makes the next snapshot, and answers to calls, say how far the table is.
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

// writeSnapshot replaces the snapshot. The table may be newer than the positions say:
// following changes again does no harm.
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
	head, err := json.Marshal(snapshotHead{Where: s.o.Where.String(), HashTags: s.o.HashTags, SavedAt: time.Now().UTC(), Tags: at})
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

// errOtherRedis says that a snapshot belongs to another Redis.
var errOtherRedis = errors.New("it is of another Redis, or of another redis.prefix")

// loadSnapshot loads the snapshot into the table, and sets the positions of the tags.
func (s *Store) loadSnapshot() {
	if s.o.CachePath == "" {
		return
	}
	snapshot, err := s.openSnapshot()
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		defer snapshot.Close()
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
	s.hasSnapshot.Store(true)
	s.o.Log.Info("redis: assignments are those of the snapshot until Redis says more", "path", s.o.CachePath, "assignments", s.table.Len(), "saved_at", s.snapshotAt)
}

// movedEpoch is the epoch of tags that the snapshot does not have: it had others.
const movedEpoch = "snapshot"

// goOnFrom sets the tags to the positions of a snapshot.
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
			// The assignments are now spread over other tags. Either Redis has them, or
			// they are lost.
			t.at, t.has = newest, newest
			t.setEpoch(movedEpoch)
		}
		t.noteKnown()
	}
}

// openSnapshot opens the snapshot of this Redis, which may have been set aside.
func (s *Store) openSnapshot() (*Snapshot, error) {
	snapshot, err := OpenSnapshot(s.o.CachePath)
	if err == nil {
		if s.o.Where.isIn(snapshot.Where()) {
			return snapshot, nil
		}
		s.keepAside(snapshot)
		err = errors.Join(fs.ErrNotExist, snapshot.Close())
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if _, err := os.Lstat(s.o.CachePath); err == nil {
		return nil, errOtherRedis // it could not be set aside
	}
	return s.takeBack()
}

// asidePath returns where a snapshot of another Redis is kept: the n-th one, from 1 on.
func (s *Store) asidePath(n int) string {
	if n == 1 {
		return s.o.CachePath + ".other"
	}
	return fmt.Sprintf("%s.other.%d", s.o.CachePath, n)
}

// keepAside sets a snapshot of another Redis aside, for people, and for when this daemon
// uses that Redis again.
func (s *Store) keepAside(snapshot *Snapshot) {
	n := 1
	for ; ; n++ {
		if _, err := os.Lstat(s.asidePath(n)); err != nil {
			break
		}
	}
	aside := s.asidePath(n)
	if err := os.Rename(s.o.CachePath, aside); err != nil {
		s.o.Log.Error("redis: the snapshot of assignments is of another Redis, or of another redis.prefix; it is not used, and cannot be kept", "path", s.o.CachePath, "of", snapshot.Where(), "error", err)
		return
	}
	s.o.Log.Warn("redis: the snapshot of assignments is not used, and is kept as "+aside+"; to assign what it has: ratelimitd assignments --export csv --snapshot "+aside+" | ratelimitd assign --from -",
		"path", s.o.CachePath, "error", fmt.Errorf("%w: %s", errOtherRedis, snapshot.Where()))
}

// takeBack opens the newest snapshot of this Redis that was set aside, as the current one
// of this daemon.
func (s *Store) takeBack() (*Snapshot, error) {
	dir := filepath.Dir(s.o.CachePath)
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var newest *Snapshot
	for _, file := range files {
		if !strings.HasPrefix(file.Name(), filepath.Base(s.asidePath(1))) {
			continue
		}
		snapshot, err := OpenSnapshot(filepath.Join(dir, file.Name()))
		if err != nil {
			continue // people have to look at it
		}
		if !s.o.Where.isIn(snapshot.Where()) || newest != nil && snapshot.SavedAt().Before(newest.SavedAt()) {
			snapshot.Close()
			continue
		}
		if newest != nil {
			newest.Close()
		}
		newest = snapshot
	}
	if newest == nil {
		return nil, fs.ErrNotExist
	}
	aside := newest.file.Name()
	if err := os.Rename(aside, s.o.CachePath); err != nil {
		return nil, errors.Join(err, newest.Close())
	}
	s.o.Log.Info("redis: the snapshot of assignments that was kept aside is of this Redis, and is used", "path", s.o.CachePath, "kept_as", aside)
	return newest, nil
}

// Snapshot is an open snapshot that is complete.
type Snapshot struct {
	file *os.File
	head snapshotHead
}

// OpenSnapshot opens a snapshot, and reads it to see whether it is complete.
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

// Where says which Redis it belongs to, for people.
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

// lineReader reads lines and hashes them.
type lineReader struct {
	r   *bufio.Reader
	sum hash.Hash
}

// next returns a line without its end, valid until the next call.
func (r *lineReader) next() ([]byte, error) {
	line, err := r.r.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	r.sum.Write(line)
	return line[:len(line)-1], nil
}
