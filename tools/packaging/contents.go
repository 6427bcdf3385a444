package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// contents is what archives and packages have beside the binary.
type contents struct {
	// documents are README.md and its like, by name.
	documents []file
	// settings lists all settings; limits are the example limits files.
	settings file
	limits   []file
	// completions has the script of each shell.
	completions map[string][]byte
	// man is the compressed manual page.
	man []byte
	// unit runs the daemon under systemd, as the user that users defines.
	unit, users file
}

// readContents reads them. What a binary prints, completions and the manual page, is added
// later.
func (r repository) readContents() (c contents, err error) {
	for _, name := range []string{"README.md", "CHANGELOG.md", "LICENSE", "NOTICE"} {
		f, err := r.read(name, name)
		if errors.Is(err, fs.ErrNotExist) && name != "README.md" {
			continue
		}
		if err != nil {
			return c, err
		}
		c.documents = append(c.documents, f)
	}
	if c.settings, err = r.read("deploy/ratelimitd.yaml", "ratelimitd.yaml"); err != nil {
		return c, err
	}
	if c.unit, err = r.read("deploy/systemd/ratelimitd.service", "ratelimitd.service"); err != nil {
		return c, err
	}
	if c.users, err = r.read("deploy/debian/sysusers.conf", "sysusers.conf"); err != nil {
		return c, err
	}
	paths, err := filepath.Glob(filepath.Join(r.root, "deploy/limits/*.yaml"))
	if err != nil {
		return c, err
	}
	for _, path := range paths {
		f, err := r.read("deploy/limits/"+filepath.Base(path), filepath.Base(path))
		if err != nil {
			return c, err
		}
		c.limits = append(c.limits, f)
	}
	return c, nil
}

// read reads a file of the repository, to be called name.
func (r repository) read(path, name string) (file, error) {
	data, err := os.ReadFile(filepath.Join(r.root, filepath.FromSlash(path)))
	return file{name: name, mode: 0o644, data: data}, err
}

// files returns the files of an archive.
func (c contents) files(p platform, binary []byte) []file {
	all := []file{{name: "ratelimitd", mode: 0o755, data: binary}, c.settings}
	all = append(all, c.documents...)
	for _, f := range c.limits {
		all = append(all, file{name: "limits/" + f.name, mode: f.mode, data: f.data})
	}
	for _, s := range shells {
		all = append(all, file{name: "completions/" + s.file, mode: 0o644, data: c.completions[s.name]})
	}
	if p.os == "linux" {
		for _, f := range []file{c.unit, c.users} {
			all = append(all, file{name: "systemd/" + f.name, mode: f.mode, data: f.data})
		}
	}
	return all
}
