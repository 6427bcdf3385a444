package filestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/ratelimitd/ratelimitd/internal/assign"
)

// file keeps assignments and records in a bbolt file, whose transactions are on disk
// entirely or not at all.
type file struct {
	db  *bbolt.DB
	max int // records
	// touched is roughly how many entries were read or written since the pages of the
	// file were last released.
	touched int
}

// maxTouched is how many entries are read or written before the pages of the file are
// released. It is small, since the system also maps what is around a page: 64 KiB, or a
// whole folio of up to 2 MiB.
const maxTouched = 500

// The buckets: assignments by the text of their subject, records by ID, and the version
// of the format.
var (
	bucketAssignments = []byte("assignments")
	bucketRecords     = []byte("records")
	bucketFormat      = []byte("format")
	keyVersion        = []byte("version")
	version           = []byte("1")
)

// lockTimeout is how long to wait for another process that holds the file.
const lockTimeout = time.Second

func openFile(path string, maxRecords int) (_ *file, err error) {
	// An unreadable page would otherwise end the process.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recovered(&err)
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, errors.New("another daemon has it")
	}
	if err != nil {
		return nil, fmt.Errorf("it cannot be opened, or is not one of assignments: %w", err)
	}
	f := &file{db: db, max: maxRecords}
	if err := f.prepare(path); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return f, nil
}

// recovered turns a panic of bbolt, which does not expect damaged files, into an error.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("it is damaged: %v", p)
	}
}

// prepare creates the buckets, and refuses a file that was truncated or is from a later
// version.
func (f *file) prepare(path string) error {
	return f.db.Update(func(tx *bbolt.Tx) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.Size() < tx.Size() {
			return fmt.Errorf("it is damaged: it has %d bytes, and should have %d", info.Size(), tx.Size())
		}
		for _, name := range [][]byte{bucketAssignments, bucketRecords, bucketFormat} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		format := tx.Bucket(bucketFormat)
		if found := format.Get(keyVersion); found != nil && string(found) != string(version) {
			return fmt.Errorf("its format is %q, where this version of the daemon reads %q", found, version)
		}
		return format.Put(keyVersion, version)
	})
}

func (f *file) load(put func(*assign.Assignment) error) (last uint64, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recovered(&err)
	err = f.db.View(func(tx *bbolt.Tx) error {
		if newest, _ := tx.Bucket(bucketRecords).Cursor().Last(); newest != nil {
			if len(newest) != 8 {
				return fmt.Errorf("it is damaged: a record has the ID %x", newest)
			}
			last = binary.BigEndian.Uint64(newest)
		}
		defer f.letGo(tx, maxTouched)
		return tx.Bucket(bucketAssignments).ForEach(func(text, value []byte) error {
			a, err := assign.Decode(value)
			if err == nil && a.Text() != string(text) {
				err = fmt.Errorf("it is of %q", a.Text())
			}
			if err != nil {
				return fmt.Errorf("the assignment of %q: %w", text, err)
			}
			f.letGo(tx, 1)
			return put(a)
		})
	})
	return last, err
}

func (f *file) keep(c *commit) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recovered(&err)
	return f.db.Update(func(tx *bbolt.Tx) error {
		assignments := tx.Bucket(bucketAssignments)
		for text, a := range c.puts {
			var err error
			if a == nil {
				err = assignments.Delete([]byte(text))
			} else {
				err = assignments.Put([]byte(text), assign.Encode(a))
			}
			if err != nil {
				return err
			}
			f.letGo(tx, 1)
		}
		records := tx.Bucket(bucketRecords)
		// Records arrive in the order of their keys, so pages may be full.
		records.FillPercent = 0.9
		for i := range c.records {
			if err := records.Put(keyOf(c.first+uint64(i)), assign.EncodeRecord(&c.records[i])); err != nil {
				return err
			}
			f.letGo(tx, 1)
		}
		return f.trim(records)
	})
}

// trim removes the oldest records beyond the bound. IDs have no gaps.
func (f *file) trim(records *bbolt.Bucket) error {
	newest, _ := records.Cursor().Last()
	for newest != nil {
		oldest, _ := records.Cursor().First()
		if binary.BigEndian.Uint64(newest)-binary.BigEndian.Uint64(oldest) < uint64(f.max) {
			return nil
		}
		if err := records.Delete(oldest); err != nil {
			return err
		}
	}
	return nil
}

// letGo counts entries that were read or written, and after many of them releases the
// pages of the file, which the system still caches: they would count as the process's
// memory, and could be as many as the file has.
func (f *file) letGo(tx *bbolt.Tx, entries int) {
	if f.touched += entries; f.touched >= maxTouched {
		f.touched = 0
		letGoOf(f.db.Info().Data, tx.Size())
	}
}

func keyOf(id uint64) []byte { return binary.BigEndian.AppendUint64(nil, id) }

func (f *file) records(before uint64, each func(uint64, assign.Record) bool) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recovered(&err)
	return f.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucketRecords).Cursor()
		c.Seek(keyOf(before))
		key, value := c.Prev()
		if before == ^uint64(0) {
			key, value = c.Last()
		}
		for ; key != nil; key, value = c.Prev() {
			r, err := assign.DecodeRecord(value)
			if err != nil {
				return err
			}
			if !each(binary.BigEndian.Uint64(key), r) {
				return nil
			}
		}
		return nil
	})
}

func (f *file) close() error { return f.db.Close() }
