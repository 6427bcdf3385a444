package access

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// lockWait is how long Rewrite waits for another one that rewrites the same file.
const lockWait = 5 * time.Second

// Rewrite replaces the text of a file by what change makes of it, in one step: readers
// see the old text or the new one. Mode and owner stay; a missing file has the text nil,
// and is created with the mode 0600. Concurrent rewrites wait for each other, by a file
// beside it with .new after its name. On any error the file stays as it was.
func Rewrite(path string, change func(text []byte) ([]byte, error)) error {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to // the link stays
	}
	f, err := lock(path + ".new")
	if err != nil {
		return err
	}
	err = errors.Join(rewrite(f, path, change), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// lock makes a file that did not exist.
func lock(name string) (*os.File, error) {
	for end := time.Now().Add(lockWait); ; time.Sleep(20 * time.Millisecond) {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		switch {
		case err == nil:
			return f, nil
		case !errors.Is(err, fs.ErrExist):
			return nil, err
		case time.Now().After(end):
			return nil, fmt.Errorf("%s is there for %s: another command is writing, or one was killed; remove it in that case", name, lockWait)
		}
	}
}

// rewrite writes into f what change makes of the file at path.
func rewrite(f *os.File, path string, change func([]byte) ([]byte, error)) error {
	before, err := os.Stat(path)
	var text []byte
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		if text, err = yamlfile.ReadFile(path); err != nil {
			return err
		}
		if err := keepAccess(f, path, before); err != nil {
			return err
		}
	}
	if text, err = change(text); err != nil {
		return err
	}
	if _, err := f.Write(text); err != nil {
		return err
	}
	return f.Sync()
}

// keepAccess gives a new file the owner and the mode of the one that it replaces: the
// daemon must still be able to read it.
func keepAccess(f *os.File, path string, before fs.FileInfo) error {
	now, err := f.Stat()
	if err != nil {
		return err
	}
	old, new := before.Sys().(*syscall.Stat_t), now.Sys().(*syscall.Stat_t)
	if old.Uid != new.Uid || old.Gid != new.Gid {
		if err := f.Chown(int(old.Uid), int(old.Gid)); err != nil {
			return fmt.Errorf("%s belongs to user %d and group %d, which a new file cannot be given (%w); run this as that user, or as root", path, old.Uid, old.Gid, err)
		}
	}
	return f.Chmod(before.Mode().Perm())
}
