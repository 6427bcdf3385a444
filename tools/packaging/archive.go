package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"path"
	"slices"
	"strings"
	"time"
)

// file is a file of an archive or a package.
type file struct {
	name string // with slashes, in the archive
	mode int64
	data []byte
}

// archive returns a tar.gz with the files below one folder. It depends on nothing but
// these arguments: owners, order, modes and times are not those of this machine.
func archive(folder string, files []file, when time.Time) ([]byte, error) {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	w := tar.NewWriter(compressed)
	add := func(kind byte, name string, mode int64, data []byte) error {
		err := w.WriteHeader(&tar.Header{
			Typeflag: kind, Name: name, Mode: mode, Size: int64(len(data)), ModTime: when,
			Uname: "root", Gname: "root", Format: tar.FormatUSTAR,
		})
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	}
	made := make(map[string]bool)
	for _, f := range files {
		for _, dir := range foldersOf(path.Join(folder, f.name)) {
			if made[dir] {
				continue
			}
			made[dir] = true
			if err := add(tar.TypeDir, dir+"/", 0o755, nil); err != nil {
				return nil, err
			}
		}
		if err := add(tar.TypeReg, path.Join(folder, f.name), f.mode, f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := compressed.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// foldersOf returns the folders above a file, the outermost first.
func foldersOf(name string) (folders []string) {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		folders = append(folders, dir)
	}
	slices.Reverse(folders)
	return folders
}
