package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// release is a version to be made.
type release struct {
	repo      repository
	version   string
	platforms []platform
	// asItIs is set to warn of what is wrong with the tree, in place of refusing it.
	asItIs bool
	// build builds the binary of a platform.
	build func(version string, p platform, to string) error
	out   io.Writer
}

// write checks that the tree is that of the version, and writes the release into a folder,
// all of it or nothing.
func (r release) write(folder string) error {
	work, err := readWorkspace(r.repo.root)
	if err != nil {
		return err
	}
	missing, err := r.check(work)
	if err != nil {
		return err
	}
	c, binaries, err := r.gather()
	if err != nil {
		return err
	}
	made, err := r.pack(work, c, binaries)
	if err != nil {
		return err
	}
	if err := writeAll(folder, made); err != nil {
		return err
	}
	for _, f := range made {
		fmt.Fprintln(r.out, filepath.Join(folder, f.name))
	}
	r.sayTags(work, missing)
	return nil
}

// check returns the tags of the version that do not exist yet. Its error has all that
// keeps the tree from being the version.
func (r release) check(work *workspace) (missing []string, err error) {
	var complaints []string
	changes, err := r.repo.changes()
	if err != nil {
		return nil, err
	}
	if changes != "" {
		complaints = append(complaints, changes)
	}
	if others := work.otherVersions(r.version); len(others) > 0 {
		complaints = append(complaints, fmt.Sprintf("%d lines name other versions of the project's modules, such as: %s; make set-version VERSION=%s sets all of them", len(others), others[0], r.version))
	}
	misplaced, missing, err := r.repo.misplaced(work.tags(r.version))
	if err != nil {
		return nil, err
	}
	complaints = append(complaints, misplaced...)
	if len(complaints) == 0 {
		return missing, nil
	}
	text := fmt.Sprintf("this tree is not %s:\n  %s", r.version, strings.Join(complaints, "\n  "))
	if r.asItIs {
		fmt.Fprintln(r.out, "warning:", text)
		return missing, nil
	}
	return nil, errors.New(text + "\nTo build it all the same, for a try: make release VERSION=" + r.version + " AS_IT_IS=1")
}

// sayTags says which tags belong to the version.
func (r release) sayTags(work *workspace, missing []string) {
	all := strings.Join(work.tags(r.version), " ")
	fmt.Fprintf(r.out, "\nThe tags of %s, one for each module, are %s.\n", r.version, all)
	if len(missing) > 0 {
		fmt.Fprintf(r.out, "Make those that are missing, and push all at once:\n\n  for tag in %s; do git tag \"$tag\"; done\n  git push --atomic origin %s\n", strings.Join(missing, " "), all)
	}
}

// gather builds the binaries, and reads what goes with them.
func (r release) gather() (c contents, binaries map[platform][]byte, err error) {
	if c, err = r.repo.readContents(); err != nil {
		return c, nil, err
	}
	dir, err := os.MkdirTemp("", "ratelimitd-release-")
	if err != nil {
		return c, nil, err
	}
	defer os.RemoveAll(dir)
	binaries = make(map[platform][]byte)
	for _, p := range r.platforms {
		path := filepath.Join(dir, p.String())
		if err := r.build(r.version, p, path); err != nil {
			return c, nil, err
		}
		if binaries[p], err = os.ReadFile(path); err != nil {
			return c, nil, err
		}
	}
	own := filepath.Join(dir, host.String())
	if binaries[host] == nil {
		if err := r.build(r.version, host, own); err != nil {
			return c, nil, err
		}
	}
	if c.completions, err = completions(own); err != nil {
		return c, nil, err
	}
	c.man, err = manPage(own, r.version, r.repo.time)
	return c, binaries, err
}

// pack returns the files of the release, in the order of their names.
func (r release) pack(work *workspace, c contents, binaries map[platform][]byte) (made []file, err error) {
	add := func(name string, data []byte) { made = append(made, file{name: name, mode: 0o644, data: data}) }
	for _, p := range r.platforms {
		binary, name := binaries[p], fmt.Sprintf("ratelimitd_%s_%s", strings.TrimPrefix(r.version, "v"), p)
		packed, err := archive(name, c.files(p, binary), r.repo.time)
		if err != nil {
			return nil, err
		}
		add(name+".tar.gz", packed)
		modules, err := modulesOf(binary, r.version, work.published(), r.repo.time)
		if err != nil {
			return nil, err
		}
		add(name+".cdx.json", modules)
		if p.os != "linux" {
			continue
		}
		name, packed, err = r.repo.debian(r.version, p.arch, c, binary)
		if err != nil {
			return nil, err
		}
		add(name, packed)
	}
	slices.SortFunc(made, func(a, b file) int { return strings.Compare(a.name, b.name) })
	var sums strings.Builder
	for _, f := range made {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(f.data), f.name)
	}
	return slices.Insert(made, 0, file{name: "SHA256SUMS", mode: 0o644, data: []byte(sums.String())}), nil
}

// writePackages writes the Debian packages of the tree as it is.
func (r release) writePackages(folder string) error {
	c, binaries, err := r.gather()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, p := range r.platforms {
		name, data, err := r.repo.debian(r.version, p.arch, c, binaries[p])
		if err != nil {
			return err
		}
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
		fmt.Fprintln(r.out, path)
	}
	return nil
}

// writeAll replaces a folder, which is that of a release or not there, by one with these
// files.
func writeAll(folder string, all []file) error {
	if _, err := os.Stat(folder); err == nil {
		if _, err := os.Stat(filepath.Join(folder, all[0].name)); err != nil {
			return fmt.Errorf("%s: found a folder without %s; allowed: one of an earlier release, which is replaced, or none", folder, all[0].name)
		}
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return err
	}
	next, err := os.MkdirTemp(filepath.Dir(folder), ".release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(next)
	if err := os.Chmod(next, 0o755); err != nil {
		return err
	}
	for _, f := range all {
		if err := os.WriteFile(filepath.Join(next, f.name), f.data, os.FileMode(f.mode)); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	return os.Rename(next, folder)
}
