package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

// debian returns a Debian package and the name of its file.
func (r repository) debian(version, arch string, c contents, binary []byte) (name string, data []byte, err error) {
	// nfpm reads files by their names.
	dir, err := os.MkdirTemp("", "ratelimitd-deb-")
	if err != nil {
		return "", nil, err
	}
	defer os.RemoveAll(dir)
	s := staging{dir: dir, when: r.time}
	if err := r.stage(&s, c, binary); err != nil {
		return "", nil, err
	}
	scripts := filepath.Join(r.root, "deploy/debian")
	info := nfpm.WithDefaults(&nfpm.Info{
		Name:        "ratelimitd",
		Arch:        arch,
		Platform:    "linux",
		Version:     version,
		Section:     "net",
		Priority:    "optional",
		Maintainer:  "ratelimitd maintainers <maintainers@ratelimitd.invalid>",
		Homepage:    "https://github.com/ratelimitd/ratelimitd",
		Description: "rate-limit service for Envoy and for any program that speaks gRPC or HTTP\nIt decides whether a request may pass, by limits in YAML files. One daemon\nkeeps its counts in memory; any number of daemons share a Redis.",
		MTime:       r.time,
		Overridables: nfpm.Overridables{
			// What makes the user; the first is on machines with systemd.
			Depends:  []string{"systemd | systemd-standalone-sysusers | systemd-sysusers"},
			Suggests: []string{"redis-server"},
			Contents: s.contents,
			Scripts: nfpm.Scripts{
				PostInstall: filepath.Join(scripts, "postinst.sh"),
				PreRemove:   filepath.Join(scripts, "prerm.sh"),
				PostRemove:  filepath.Join(scripts, "postrm.sh"),
			},
		},
	})
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		return "", nil, err
	}
	var out bytes.Buffer
	if err := deb.Default.Package(info, &out); err != nil {
		return "", nil, fmt.Errorf("the package for %s: %w", arch, err)
	}
	return deb.Default.ConventionalFileName(info), out.Bytes(), nil
}

// stage puts the files of the package where nfpm finds them.
func (r repository) stage(s *staging, c contents, binary []byte) error {
	add := func(kind, to string, f file) error { return s.add(kind, to, f.mode, f.data) }
	settings, err := r.read("deploy/debian/ratelimitd.yaml", "")
	if err != nil {
		return err
	}
	copyright, err := r.read("deploy/debian/copyright", "")
	if err != nil {
		return err
	}
	const doc = "/usr/share/doc/ratelimitd/"
	for _, err := range []error{
		s.add(files.TypeFile, "/usr/bin/ratelimitd", 0o755, binary),
		add(files.TypeFile, "/usr/lib/systemd/system/ratelimitd.service", c.unit),
		add(files.TypeFile, "/usr/lib/sysusers.d/ratelimitd.conf", c.users),
		add(files.TypeConfig, "/etc/ratelimitd/ratelimitd.yaml", settings),
		add(files.TypeFile, doc+"ratelimitd.yaml", c.settings),
		add(files.TypeFile, doc+"copyright", copyright),
		s.add(files.TypeFile, "/usr/share/man/man1/ratelimitd.1.gz", 0o644, c.man),
	} {
		if err != nil {
			return err
		}
	}
	for _, f := range c.documents {
		if err := add(files.TypeFile, doc+f.name, f); err != nil {
			return err
		}
	}
	for _, f := range c.limits {
		// One of them is in force, to begin with; all are there to read.
		if f.name == "api.yaml" {
			if err := add(files.TypeConfig, "/etc/ratelimitd/limits/"+f.name, f); err != nil {
				return err
			}
		}
		if err := add(files.TypeFile, doc+"examples/limits/"+f.name, f); err != nil {
			return err
		}
	}
	for _, shell := range shells {
		if err := s.add(files.TypeFile, shell.debian, 0o644, c.completions[shell.name]); err != nil {
			return err
		}
	}
	return nil
}

// staging is a folder of files to be packed, with what nfpm is to know of each.
type staging struct {
	dir      string
	when     time.Time
	contents files.Contents
}

// add adds a file by its place on the machine that installs the package.
func (s *staging) add(kind, to string, mode int64, data []byte) error {
	from := filepath.Join(s.dir, strings.ReplaceAll(to, "/", "_"))
	if err := os.WriteFile(from, data, 0o600); err != nil {
		return err
	}
	s.contents = append(s.contents, &files.Content{
		Source: from, Destination: to, Type: kind,
		FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: os.FileMode(mode), MTime: s.when, Size: int64(len(data))},
	})
	return nil
}
