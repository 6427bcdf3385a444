package reload

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// quiet is how long nothing may change before the files are read again.
	// patience is how long a change waits for that at most.
	quiet    = 200 * time.Millisecond
	patience = 2 * time.Second
)

// Watch loads the files, and again whenever they change, until ctx ends; then it
// returns nil. A burst of changes causes one reload. An error means that files
// cannot be watched here; the value in force stays.
//
// Files that cannot be loaded are no error of Watch: Status has the error, and the
// next change may mend it.
func (l *Live[T]) Watch(ctx context.Context) error {
	fw, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", l.what, err)
	}
	defer fw.Close()
	w := &watch{what: l.what, path: l.path, load: l.Reload, log: l.log, fw: fw, infos: make(map[string]os.FileInfo), failed: make(map[string]bool)}
	w.reload()

	settle := time.NewTimer(0) // runs while there is something to load
	settle.Stop()
	var since time.Time // of the first change not yet loaded, or zero
	for {
		var changed bool
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-fw.Events:
			if !ok {
				return fmt.Errorf("watch %s: the watcher was closed", l.what)
			}
			changed = w.wants(e.Name)
		case err, ok := <-fw.Errors:
			if !ok {
				return fmt.Errorf("watch %s: the watcher was closed", l.what)
			}
			// Events were lost, so anything may have changed.
			l.log.Warn("watching the files of "+l.what, "error", err)
			changed = true
		case <-settle.C:
			since = time.Time{}
			w.reload()
		}
		if changed {
			if since.IsZero() {
				since = time.Now()
			}
			settle.Reset(max(0, min(quiet, patience-time.Since(since))))
		}
	}
}

// watch is the state of the goroutine in Watch.
type watch struct {
	what, path string
	load       func() error
	log        *slog.Logger
	fw         *fsnotify.Watcher
	// wanted are the folders to watch.
	wanted interests
	// infos are the folders that are watched: another one of the same name is
	// another folder.
	infos map[string]os.FileInfo
	// failed are the folders that could not be watched, which was logged.
	failed map[string]bool
}

// reload loads the files, with watches in place that see every later change.
func (w *watch) reload() {
	// A folder that appears between the look at what to watch and the watch
	// is found by looking again.
	for range 5 {
		w.wanted = watchList(w.path)
		added := w.sync()
		_ = w.load() // logged and counted there
		if !added {
			return
		}
	}
}

// sync makes the watched folders the wanted ones, and reports whether there
// are new ones.
func (w *watch) sync() (added bool) {
	watched := w.fw.WatchList()
	for _, dir := range watched {
		if _, ok := w.wanted[dir]; !ok {
			_ = w.fw.Remove(dir) // it may be gone already
			delete(w.infos, dir)
		}
	}
	for dir := range w.wanted {
		info, err := os.Stat(dir)
		if err != nil {
			continue // gone again; the watch of its parent tells of it
		}
		known := w.infos[dir]
		if known != nil && os.SameFile(known, info) && slices.Contains(watched, dir) {
			continue
		}
		if known != nil {
			_ = w.fw.Remove(dir)
		}
		if err := w.fw.Add(dir); err != nil {
			if !w.failed[dir] {
				w.log.Warn("folder of "+w.what+" cannot be watched", "folder", dir, "error", err)
				w.failed[dir] = true
			}
			continue
		}
		delete(w.failed, dir)
		w.infos[dir] = info
		added = true
	}
	return added
}

// wants reports whether a change of this name can change what is loaded.
func (w *watch) wants(name string) bool {
	if _, ok := w.wanted[name]; ok {
		return true // a watched folder itself went or came
	}
	names, ok := w.wanted[filepath.Dir(name)]
	if !ok {
		return false
	}
	base := filepath.Base(name)
	return names.all && !strings.HasPrefix(base, ".") || names.some[base]
}

// interests are folders and which of the names in them matter.
type interests map[string]*names

type names struct {
	// all means those that do not begin with a dot.
	all  bool
	some map[string]bool
}

func (in interests) folder(dir string) *names {
	n := in[dir]
	if n == nil {
		n = &names{some: make(map[string]bool)}
		in[dir] = n
	}
	return n
}

// watchList returns what to watch to learn of every change of the files
// at a path: its folders, and each link on the way to them and to the files.
func watchList(path string) interests {
	in := make(interests)
	real, ok := in.trace(path)
	if !ok {
		return in
	}
	if info, err := os.Stat(real); err == nil && info.IsDir() {
		in.walk(real)
	}
	return in
}

// walk adds the folder and what is in it. It takes a path without links.
func (in interests) walk(dir string) {
	if n := in.folder(dir); n.all {
		return
	} else {
		n.all = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case e.IsDir():
			in.walk(name)
		case e.Type()&os.ModeSymlink != 0:
			real, ok := in.trace(name)
			if !ok {
				continue
			}
			if info, err := os.Stat(real); err == nil && info.IsDir() {
				in.walk(real)
			}
		}
	}
}

// maxLinks bounds how many links may stand on the way to a file.
const maxLinks = 255

// trace adds every link on the way to a path, and its end, each as a name in the
// folder that holds it. It returns the path without links, or false if the way
// ends early; it then adds the name that is missing.
func (in interests) trace(path string) (real string, ok bool) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", false
	}
	root := filepath.VolumeName(path) + string(filepath.Separator)
	rest := strings.Split(strings.TrimPrefix(path, root), string(filepath.Separator))
	real = root
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			real = filepath.Dir(real)
			continue
		}
		next := filepath.Join(real, name)
		info, err := os.Lstat(next)
		if err != nil {
			in.folder(real).some[name] = true
			return "", false
		}
		if info.Mode()&os.ModeSymlink == 0 {
			if len(rest) == 0 {
				in.folder(real).some[name] = true
			}
			real = next
			continue
		}
		in.folder(real).some[name] = true
		target, err := os.Readlink(next)
		if links++; err != nil || links > maxLinks {
			return "", false
		}
		if filepath.IsAbs(target) {
			root = filepath.VolumeName(target) + string(filepath.Separator)
			real, target = root, strings.TrimPrefix(target, root)
		}
		rest = append(strings.Split(target, string(filepath.Separator)), rest...)
	}
	return real, true
}
