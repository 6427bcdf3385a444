package limitsfile

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// Load reads the limits files at paths: files of any name, and folders with all .yaml,
// .yml and .json files in them and in their subfolders. Names that begin with a dot are
// skipped, links are followed.
//
// Its error is of type yamlfile.Errors and holds everything that is wrong in all files;
// or it wraps the operating system's error, if a path cannot be read.
func Load(paths ...string) (*rules.Set, error) { return Options{}.Load(paths...) }

// Load is the function Load, with options.
func (o Options) Load(paths ...string) (*rules.Set, error) {
	src, err := readSource(o.Input, paths...)
	if err != nil {
		return nil, err
	}
	return src.rules(newLoader(o))
}

// inputName stands for Options.Input in errors, in place of a file name.
const inputName = "standard input"

// source is the text of the limits files at a path.
type source struct {
	path  string
	files []sourceFile
	// folders are all folders that were listed.
	folders []string
	// passedOver are the other files in them, whose names neither end like those of
	// limits files nor begin with a dot.
	passedOver []string
}

// texts returns the files as they were read.
func (s *source) texts() []Text {
	texts := make([]Text, 0, len(s.files))
	for _, f := range s.files {
		name, err := filepath.Rel(s.path, f.name)
		if err != nil || name == "." {
			name = filepath.Base(f.name)
		}
		texts = append(texts, Text{Name: filepath.ToSlash(name), Text: string(f.data)})
	}
	return texts
}

type sourceFile struct {
	name string
	data []byte
	// err says why the file cannot be read.
	err error
}

// readSource reads all files at the paths, and input, unless it is nil, at the path "-".
// A file that cannot be read is an error of that file; one that vanished while the folder
// was read is treated as absent.
func readSource(input io.Reader, paths ...string) (*source, error) {
	src := &source{path: strings.Join(paths, ", ")}
	seen := make(map[string]bool)
	for _, path := range paths {
		if path == "-" && input != nil {
			data, err := yamlfile.ReadAll(input, inputName)
			src.files = append(src.files, sourceFile{name: inputName, data: data, err: err})
			continue
		}
		if err := src.read(path, seen); err != nil {
			return nil, fmt.Errorf("limits: %w", err)
		}
	}
	return src, nil
}

func (s *source) read(path string, seen map[string]bool) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return s.folder(path, seen)
	}
	if !info.Mode().IsRegular() {
		// Opening a pipe would wait for its other end.
		return fmt.Errorf("%s is neither a file nor a folder", path)
	}
	data, err := yamlfile.ReadFile(path)
	if err != nil {
		return err
	}
	s.files = append(s.files, sourceFile{name: path, data: data})
	return nil
}

// folder reads the contents of one folder. Links can lead to a folder more than once; it
// is read the first time.
func (s *source) folder(name string, seen map[string]bool) error {
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	if seen[real] {
		return nil
	}
	seen[real] = true
	s.folders = append(s.folders, name)
	entries, err := os.ReadDir(name)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if err := s.entry(filepath.Join(name, e.Name()), seen); err != nil {
			return err
		}
	}
	return nil
}

func (s *source) entry(name string, seen map[string]bool) error {
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		err := s.folder(name, seen)
		if errors.Is(err, fs.ErrNotExist) && !exists(name) {
			return nil
		}
		return err
	case !isLimitsFile(name):
		if err == nil && info.Mode().IsRegular() {
			s.passedOver = append(s.passedOver, name)
		}
		return nil
	case !exists(name):
		return nil
	case err == nil && !info.Mode().IsRegular():
		err = fmt.Errorf("not a file")
	}
	f := sourceFile{name: name, err: err}
	if err == nil {
		f.data, f.err = yamlfile.ReadFile(name)
		if errors.Is(f.err, fs.ErrNotExist) && !exists(name) {
			return nil
		}
	}
	s.files = append(s.files, f)
	return nil
}

// exists reports whether something has that name. A dangling link counts.
func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

func isLimitsFile(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// digest identifies sources by the names and contents of their files, and by the names
// of the others, of which the rules warn.
func (s *source) digest() [sha256.Size]byte {
	h := sha256.New()
	add := func(data []byte) {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(data))))
		h.Write(data)
	}
	for _, f := range s.files {
		add([]byte(f.name))
		add(f.data)
		if f.err != nil {
			add([]byte(f.err.Error()))
		}
	}
	for _, name := range s.passedOver {
		add([]byte(name))
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// rules turns the texts into rules. It drops each text once it is read.
func (s *source) rules(l *loader) (*rules.Set, error) {
	for i, f := range s.files {
		s.files[i].data = nil
		if f.err != nil {
			l.errs = append(l.errs, yamlfile.Error{File: f.name, Found: "a file that cannot be read: " + cause(f.err)})
			continue
		}
		l.file(f.name, f.data)
	}
	if len(s.files) == 0 {
		l.warnings = append(l.warnings, yamlfile.Warning{File: s.path, Text: "no .yaml, .yml or .json file in this folder, so nothing is limited"})
	}
	for _, name := range s.passedOver {
		l.warnings = append(l.warnings, yamlfile.Warning{File: name, Text: "passed over, so nothing in it limits anything: its name does not end in .yaml, .yml or .json"})
	}
	return l.result()
}

// cause returns the text of an error without the name of the file.
func cause(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return err.Error()
}
