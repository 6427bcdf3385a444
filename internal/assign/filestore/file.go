package filestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/ratelimitd/ratelimitd/internal/assign"
)

// file keeps assignments and records in a bbolt file, whose transactions are on disk
// entirely or not at all. The first change creates it, so that a daemon to which nothing
// is assigned needs no place to write.
type file struct {
	path       string
	maxRecords int
	// db is nil while the file does not exist.
	db atomic.Pointer[bbolt.DB]
}

// The buckets: "<etag> <assignment>" by the text of its subject, and records by number.
var (
	bucketAssignments = []byte("assignments")
	bucketRecords     = []byte("records")
)

// lockTimeout is how long to wait for another process that holds the file.
const lockTimeout = time.Second

// openFile opens a file if it exists, or if it is optional.
func openFile(o Options) (*file, error) {
	f := &file{path: o.Path, maxRecords: o.MaxRecords}
	if _, err := os.Stat(o.Path); errors.Is(err, fs.ErrNotExist) && !o.Optional {
		return f, nil
	}
	return f, f.open()
}

// errHeld says that another process has the file open.
var errHeld = errors.New("another daemon has it")

// isUnavailable reports whether a file is not this daemon's to use, while nothing is wrong
// with it.
func isUnavailable(err error) bool {
	for _, reason := range [...]error{errHeld, fs.ErrNotExist, fs.ErrPermission, syscall.EROFS} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

// guarded calls do. If bbolt panics, which does not expect damaged files, or if a page
// cannot be read, that becomes an error.
func guarded(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it is damaged: %v", p)
		}
	}()
	return do()
}

func (f *file) open() error {
	return guarded(func() error {
		db, err := bbolt.Open(f.path, 0o600, &bbolt.Options{Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType})
		if errors.Is(err, bolterrors.ErrTimeout) {
			return errHeld
		}
		if errors.As(err, new(syscall.Errno)) {
			return fmt.Errorf("it cannot be opened: %w", err)
		}
		if err != nil {
			return fmt.Errorf("it is not one of assignments, or is damaged: %w", err)
		}
		f.db.Store(db)
		return db.Update(func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucketIfNotExists(bucketAssignments)
			_, err2 := tx.CreateBucketIfNotExists(bucketRecords)
			return errors.Join(err, err2)
		})
	})
}

// create creates the file. If it exists by now, it belongs to another daemon, whose
// assignments this one does not have.
func (f *file) create() error {
	if _, err := os.Stat(f.path); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(errors.New("another daemon has made it"), err)
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	return f.open()
}

// view reads the file, if there is one.
func (f *file) view(read func(*bbolt.Tx) error) error {
	if f == nil || f.db.Load() == nil {
		return nil
	}
	return guarded(func() error { return f.db.Load().View(read) })
}

// load calls put for each assignment until it fails, and returns the number of the newest
// record, or 0.
func (f *file) load(put func(*assign.Assignment) error) (last uint64, err error) {
	err = f.view(func(tx *bbolt.Tx) error {
		if key, _ := tx.Bucket(bucketRecords).Cursor().Last(); key != nil {
			last = numberOf(key)
		}
		return tx.Bucket(bucketAssignments).ForEach(func(subject, value []byte) error {
			etag, text, _ := bytes.Cut(value, []byte(" "))
			a, err := assign.Decode(text)
			if err != nil {
				return fmt.Errorf("the assignment of %q: %w", subject, err)
			}
			a.ETag = string(etag)
			return put(a)
		})
	})
	return last, err
}

// keep writes all of a commit or nothing.
func (f *file) keep(c *commit) error {
	if f.db.Load() == nil {
		if err := f.create(); err != nil {
			return fmt.Errorf("the file %s cannot be made, so %w (setting assignments.path): %w", f.path, assign.ErrNothingChanged, err)
		}
	}
	err := guarded(func() error { return f.db.Load().Update(func(tx *bbolt.Tx) error { return f.write(tx, c) }) })
	if err != nil && len(c.records) > 0 && f.lacks(c.first) {
		return fmt.Errorf("%w: %w", assign.ErrNothingChanged, err) // such as a full disk
	}
	return err
}

// lacks reports whether the file certainly has no record of a number. A transaction that
// failed at its last step, a sync, may be in the file.
func (f *file) lacks(number uint64) (certainly bool) {
	err := f.view(func(tx *bbolt.Tx) error {
		certainly = tx.Bucket(bucketRecords).Get(keyOf(number)) == nil
		return nil
	})
	return certainly && err == nil
}

func (f *file) write(tx *bbolt.Tx, c *commit) error {
	assignments, records := tx.Bucket(bucketAssignments), tx.Bucket(bucketRecords)
	var err error
	for subject, a := range c.puts {
		if a.IsEmpty() {
			err = errors.Join(err, assignments.Delete([]byte(subject)))
		} else {
			err = errors.Join(err, assignments.Put([]byte(subject), append([]byte(a.ETag+" "), assign.Encode(a)...)))
		}
	}
	// Records arrive in the order of their keys, so pages may be full.
	records.FillPercent = 0.9
	for i := range c.records {
		number := c.first + uint64(i)
		err = errors.Join(err, records.Put(keyOf(number), assign.EncodeRecord(&c.records[i])))
		// Numbers have no gaps.
		if oldest, _ := records.Cursor().First(); number-numberOf(oldest) >= uint64(f.maxRecords) {
			err = errors.Join(err, records.Delete(oldest))
		}
	}
	return err
}

// records calls each for the records before the one with a number, newest first, until it
// returns false.
func (f *file) records(before uint64, each func(assign.Record) bool) error {
	return f.view(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucketRecords).Cursor()
		var key, value []byte
		if at, _ := c.Seek(keyOf(before)); at == nil {
			key, value = c.Last()
		} else {
			key, value = c.Prev()
		}
		for ; key != nil; key, value = c.Prev() {
			r, err := assign.DecodeRecord(value, strconv.FormatUint(numberOf(key), 10), 0)
			if err != nil || !each(r) {
				return err
			}
		}
		return nil
	})
}

func keyOf(number uint64) []byte { return binary.BigEndian.AppendUint64(nil, number) }

// numberOf returns the number of a record's key, which panics if the file is damaged.
func numberOf(key []byte) uint64 { return binary.BigEndian.Uint64(key) }

func (f *file) close() error {
	if f == nil || f.db.Load() == nil {
		return nil
	}
	return f.db.Load().Close()
}
