package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// workspace is go.work with the go.mod of each of its modules.
type workspace struct {
	root    string
	work    *modfile.WorkFile
	modules map[string]*modfile.File // by path of the file
}

func readWorkspace(root string) (*workspace, error) {
	w := &workspace{root: root, modules: make(map[string]*modfile.File)}
	path := filepath.Join(root, "go.work")
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if w.work, err = modfile.ParseWork(path, text, nil); err != nil {
		return nil, err
	}
	for _, use := range w.work.Use {
		path := filepath.Join(root, use.Path, "go.mod")
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if w.modules[path], err = modfile.Parse(path, text, nil); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// published returns the paths of the modules that others require, sorted: those that
// go.work replaces.
func (w *workspace) published() []string {
	var paths []string
	for _, r := range w.work.Replace {
		paths = append(paths, r.Old.Path)
	}
	slices.Sort(paths)
	return paths
}

// tags returns the tags of a version, one for each module: v1.2.3, client/v1.2.3.
func (w *workspace) tags(version string) []string {
	paths := w.published()
	root := paths[0] // all others are below it
	tags := make([]string, len(paths))
	for i, path := range paths {
		tags[i] = strings.TrimPrefix(strings.TrimPrefix(path, root)+"/"+version, "/")
	}
	return tags
}

// otherVersions says which files have other versions of the project's own modules.
func (w *workspace) otherVersions(version string) (found []string) {
	own := w.published()
	for path, file := range w.modules {
		for _, r := range file.Require {
			if slices.Contains(own, r.Mod.Path) && r.Mod.Version != version {
				found = append(found, fmt.Sprintf("%s requires %s", w.relative(path), r.Mod))
			}
		}
	}
	for _, r := range w.work.Replace {
		if r.Old.Version != version {
			found = append(found, fmt.Sprintf("go.work replaces %s", r.Old))
		}
	}
	slices.Sort(found)
	return found
}

func (w *workspace) relative(path string) string {
	if short, err := filepath.Rel(w.root, path); err == nil {
		return filepath.ToSlash(short)
	}
	return path
}

// setVersion has all modules require each other at a version, and go.work replace it.
func setVersion(root, version string, out io.Writer) error {
	w, err := readWorkspace(root)
	if err != nil {
		return err
	}
	own := w.published()
	for path, file := range w.modules {
		for _, r := range file.Require {
			if !slices.Contains(own, r.Mod.Path) {
				continue
			}
			if err := file.AddRequire(r.Mod.Path, version); err != nil {
				return err
			}
		}
		text, err := file.Format()
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	for _, r := range w.work.Replace {
		// AddReplace would move the line to the end.
		if i := slices.Index(r.Syntax.Token, r.Old.Version); i >= 0 {
			r.Syntax.Token[i] = version
		}
	}
	path := filepath.Join(root, "go.work")
	if err := os.WriteFile(path, modfile.Format(w.work.Syntax), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(out, "All modules require each other at %s. Commit that, then make release VERSION=%[1]s\n", version)
	return nil
}
