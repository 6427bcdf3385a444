package reload_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/config/reload"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// newLive returns a Live of which the value is the texts of all files at a path,
// sorted. A text that begins with "bad" is an error.
func newLive(path string) (*reload.Live[string], *asynctest.Buffer) {
	log := new(asynctest.Buffer)
	return reload.New("texts", path, slog.New(slog.NewTextHandler(log, nil)), read), log
}

func read(path string) (reload.Files[string], error) {
	texts, err := textsAt(path)
	if err != nil {
		return reload.Files[string]{}, err
	}
	slices.Sort(texts)
	value := strings.Join(texts, " ")
	return reload.Files[string]{
		Digest: sha256.Sum256([]byte(value)),
		Parse: func(*string) (*string, []any, error) {
			for _, text := range texts {
				if strings.HasPrefix(text, "bad") {
					return nil, nil, errors.New("found " + text)
				}
			}
			return &value, []any{"files", len(texts)}, nil
		},
	}, nil
}

// textsAt returns the texts of the files in a folder and its folders, without
// those whose names begin with a dot; or the text of a file.
func textsAt(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		text, err := os.ReadFile(path)
		return []string{string(text)}, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		texts, err := textsAt(filepath.Join(path, e.Name()))
		switch {
		case err == nil:
			all = append(all, texts...)
		case !errors.Is(err, fs.ErrNotExist): // else it has gone meanwhile
			return nil, err
		}
	}
	return all, nil
}

// valueOf returns the value in force, or "nothing".
func valueOf(l *reload.Live[string]) string {
	if v := l.Value(); v != nil {
		return *v
	}
	return "nothing"
}

func TestReloadIsAllOrNothing(t *testing.T) {
	dir := t.TempDir()
	path := filetest.Write(t, dir, "a", "a")
	l, log := newLive(dir)
	if l.Value() != nil || l.Status().Generation != 0 {
		t.Error("there is a value before the first load")
	}
	if err := l.Reload(); err != nil {
		t.Fatal(err)
	}
	first := l.Value()
	if s := l.Status(); s.Generation != 1 || s.LoadedAt.IsZero() || s.LastError != nil {
		t.Errorf("status %+v", s)
	}

	// The same text is the same generation.
	filetest.Write(t, dir, "a", "a")
	loaded := l.Status()
	if err := l.Reload(); err != nil || l.Value() != first || l.Status().Generation != 1 {
		t.Errorf("unchanged files: error %v, status %+v", err, l.Status())
	}
	if s := l.Status(); s.Succeeded != 1 || !s.SucceededAt.After(loaded.SucceededAt) || s.LoadedAt != loaded.LoadedAt {
		t.Errorf("unchanged files: status %+v, before %+v", s, loaded)
	}

	// One bad file holds back the good one. The same error is logged once.
	filetest.Write(t, dir, "a", "b")
	filetest.Write(t, dir, "bad", "bad 1")
	for range 3 {
		if err := l.Reload(); err == nil || l.Value() != first {
			t.Errorf("bad file: error %v, value %s", err, valueOf(l))
		}
	}
	if s := l.Status(); s.Generation != 1 || s.Failed != 1 || s.Succeeded != 1 || s.LastError == nil || s.FailedAt.IsZero() {
		t.Errorf("status %+v", s)
	}
	if n := log.Count("level=ERROR"); n != 1 {
		t.Errorf("the failure was logged %d times", n)
	}

	// Another error is logged again.
	filetest.Write(t, dir, "bad", "bad 2")
	if err := l.Reload(); err == nil || l.Status().Failed != 2 || log.Count("level=ERROR") != 2 {
		t.Errorf("error %v, status %+v", err, l.Status())
	}

	// Back to the value in force.
	filetest.Write(t, dir, "a", "a")
	os.Remove(filepath.Join(dir, "bad"))
	if err := l.Reload(); err != nil || l.Value() != first || l.Status().LastError != nil || l.Status().Generation != 1 || l.Status().Succeeded != 2 {
		t.Errorf("error %v, status %+v", err, l.Status())
	}

	os.Remove(path)
	os.Remove(dir)
	if err := l.Reload(); err == nil || l.Value() != first {
		t.Errorf("missing path: error %v, value %s", err, valueOf(l))
	}
}

func TestThereIsAlwaysAValueWhileReloading(t *testing.T) {
	dir := t.TempDir()
	filetest.Write(t, dir, "a", "a")
	l, _ := newLive(dir)
	if err := l.Reload(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = l.Status()
					if !strings.HasPrefix(valueOf(l), "a") {
						t.Error("a value without the first file")
						return
					}
				}
			}
		})
	}
	for i := range 100 {
		filetest.Write(t, dir, "b", fmt.Sprintf("b%d", i))
		if err := l.Reload(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
	if g := l.Status().Generation; g != 101 {
		t.Errorf("generation %d", g)
	}
}
