package reload

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// lookEvery is how often files are looked at. After a look, the watcher rests at
	// least restFactor times as long as it took, so that a folder of 100,000 files takes
	// 1 % of a processor.
	lookEvery  = 500 * time.Millisecond
	restFactor = 100
	// patience is how long to wait for files that keep changing.
	patience = 2 * time.Second
)

// Watch loads the files, and reloads them once they have changed and two looks in a row
// find the same state, until ctx ends. A burst of changes causes one reload.
//
// It stats each file, which takes 6 us. Change notifications (inotify) would need a watch
// on each folder and link on the way to a file, and fail on some file systems.
func (l *Live[T]) Watch(ctx context.Context) {
	_ = l.Reload()         // which logs and counts
	var loaded, last stamp // zero, so that changes made meanwhile are found
	var since time.Time    // time of the first change not loaded yet, or zero
	for rest := lookEvery; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(rest):
		}
		began := time.Now()
		now := stampOf(l.path)
		rest = max(lookEvery, restFactor*time.Since(began))
		switch {
		case now == loaded:
			since = time.Time{}
		case now == last || !since.IsZero() && time.Since(since) >= patience:
			loaded, since = now, time.Time{}
			_ = l.Reload()
		case since.IsZero():
			since = began
		}
		last = now
	}
}

// stamp identifies the state of all files at a path.
type stamp [sha256.Size]byte

func stampOf(path string) stamp {
	s := stamper{Hash: sha256.New(), seen: make(map[[2]uint64]bool)}
	s.add(path)
	return stamp(s.Sum(nil))
}

type stamper struct {
	hash.Hash
	// seen holds folders: links may lead to one more than once.
	seen map[[2]uint64]bool
}

// add adds what is at a path, following links. Names in a folder that begin with a dot
// are skipped.
func (s *stamper) add(path string) {
	info, err := os.Stat(path)
	if err != nil {
		fmt.Fprintf(s, "%q %v\n", path, err)
		return
	}
	var id [2]uint64
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		id = [2]uint64{uint64(stat.Dev), stat.Ino}
	}
	if !info.IsDir() {
		fmt.Fprintf(s, "%q %d %d %d\n", path, id, info.Size(), info.ModTime().UnixNano())
		return
	}
	if s.seen[id] {
		return
	}
	s.seen[id] = true
	entries, err := os.ReadDir(path)
	fmt.Fprintf(s, "%q %d %v\n", path, id, err)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			s.add(filepath.Join(path, e.Name()))
		}
	}
}
