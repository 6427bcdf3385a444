package config

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

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// LoadRules reads the limits files at paths: files of any name, and folders
// with all .yaml, .yml and .json files in it and in its folders. Names that
// begin with a dot are skipped, links are followed.
//
// Its error is of type Errors and holds all that is wrong in all files; or it
// wraps that of the operating system, if a path cannot be read.
func LoadRules(paths ...string) (*Rules, error) { return LoadOptions{}.LoadRules(paths...) }

// LoadOptions says how limits files are read. The zero value is strict.
type LoadOptions struct {
	// MergeDomains lets several files say something of one domain. Without it
	// that is an error.
	MergeDomains bool
	// Lenient warns of what envoyproxy/ratelimit accepts, instead of refusing
	// it. What that service refuses too stays an error, but for two descriptors
	// of one key and value of which one has the limit and the other has not:
	// Envoy Gateway sends such, and they are added together.
	Lenient bool
	// Input, if set, is what the path "-" means; it is read once.
	Input io.Reader
	// Sparing, if set, calls the function with which a Live replaces its rules,
	// which leaves much garbage behind: also the rules before.
	Sparing func(load func())
	// Announce, if set, is told of rules that a Live is about to put in force, and of
	// the text of their files in the order of their loading. No decision by these
	// rules was made before it returns. Texts of rules that came in messages are
	// limits files that say the same.
	Announce func(r *Rules, files []Text)
	// Clock returns the moment at which a Live puts rules in force, in
	// microseconds since the Unix epoch. If nil, it is the wall clock as of
	// NewLive plus the monotonic time since, as in memory stores.
	Clock func() int64
}

// Text is the text of a limits file. Its name is relative to the path of the limits.
type Text struct{ Name, Text string }

// LoadRules is the function of that name, with options.
func (o LoadOptions) LoadRules(paths ...string) (*Rules, error) {
	src, err := readSource(o.Input, paths...)
	if err != nil {
		return nil, err
	}
	return src.rules(newLoader(o))
}

// inputName is that of LoadOptions.Input in errors, in the place of a file's.
const inputName = "standard input"

// source is the text of the limits files at a path.
type source struct {
	path  string
	files []sourceFile
	// folders are all that were listed.
	folders []string
	// passedOver are the other files in them: their names do not end like those
	// of limits files, and do not begin with a dot.
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
		texts = append(texts, Text{filepath.ToSlash(name), string(f.data)})
	}
	return texts
}

type sourceFile struct {
	name string
	data []byte
	// err says why the file cannot be read.
	err error
}

// readSource reads all files at the paths, and input, unless it is nil, at the path
// "-". A file that cannot be read is an
// error of the file; one that vanished while the folder was read is not there.
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

// folder reads what is in one folder. Links can lead to a folder more than
// once; it is read the first time.
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

// exists reports whether there is something of that name. A link that leads
// nowhere counts.
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

// digest tells sources apart by the names of their files and what they hold.
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
	return [sha256.Size]byte(h.Sum(nil))
}

// rules turns the texts into rules. It drops each text once it is read.
func (s *source) rules(l *loader) (*Rules, error) {
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
		l.warnings = append(l.warnings, passedOverWarning(name))
	}
	return l.result()
}

func passedOverWarning(name string) yamlfile.Warning {
	return yamlfile.Warning{File: name, Text: "passed over, so nothing in it limits anything: its name does not end in .yaml, .yml or .json"}
}

// cause returns the text of an error without the name of the file.
func cause(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return err.Error()
}
