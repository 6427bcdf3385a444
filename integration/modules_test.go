package integration

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// published returns the modules that go.work has in the place of published ones, and
// their folders. Nobody requires the others, which are examples and tests.
func published(t *testing.T) map[module.Version]string {
	t.Helper()
	path := filepath.Join(projectRoot, "go.work")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	work, err := modfile.ParseWork(path, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	folders := make(map[module.Version]string)
	for _, r := range work.Replace {
		folders[r.Old] = filepath.Join(projectRoot, r.New.Path)
	}
	return folders
}

// readModule returns the go.mod in a folder.
func readModule(t *testing.T, folder string) *modfile.File {
	t.Helper()
	path := filepath.Join(folder, "go.mod")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file, err := modfile.Parse(path, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// publish makes a module proxy of files that has the modules as they are here, and
// returns its folder.
func publish(t *testing.T, modules map[module.Version]string) string {
	t.Helper()
	proxy := t.TempDir()
	for m, folder := range modules {
		versions := filepath.Join(proxy, filepath.FromSlash(m.Path), "@v")
		if err := os.MkdirAll(versions, 0o755); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(folder, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		info := fmt.Sprintf("{%q:%q,%q:%q}", "Version", m.Version, "Time", time.Now().UTC().Format(time.RFC3339))
		for name, content := range map[string]string{"list": m.Version + "\n", m.Version + ".mod": string(text), m.Version + ".info": info} {
			if err := os.WriteFile(filepath.Join(versions, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		file, err := os.Create(filepath.Join(versions, m.Version+".zip"))
		if err != nil {
			t.Fatal(err)
		}
		if err := zip.Create(file, m, filesOf(t, folder)); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return proxy
}

// filesOf returns the files of a module, and of those below it, which zip leaves out. Other
// tests write into build/ meanwhile.
func filesOf(t *testing.T, folder string) (files []zip.File) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (path == filepath.Join(folder, "build") || entry.Name() == ".git"):
			return filepath.SkipDir
		case entry.Type().IsRegular():
			files = append(files, moduleFile{folder: folder, path: path})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// moduleFile is a file of a module on disk.
type moduleFile struct{ folder, path string }

func (f moduleFile) Path() string {
	return filepath.ToSlash(strings.TrimPrefix(f.path, f.folder+string(filepath.Separator)))
}
func (f moduleFile) Lstat() (os.FileInfo, error)  { return os.Lstat(f.path) }
func (f moduleFile) Open() (io.ReadCloser, error) { return os.Open(f.path) }

// outsider is a folder outside the repository, in which go knows the project by a
// module proxy alone.
type outsider struct {
	folder string
	env    []string
}

func newOutsider(t *testing.T, proxy string) *outsider {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	known := strings.Fields(string(out))
	return &outsider{folder: t.TempDir(), env: append(plainGo(),
		"GOWORK=off",
		// A profile would have the libraries compiled once more.
		"GOFLAGS=-mod=mod -modcacherw -trimpath -buildvcs=false -pgo=off",
		// What is downloaded already is taken from where it is.
		"GOPROXY=file://"+proxy+",file://"+known[0]+"/cache/download,"+known[1],
		"GONOPROXY=none",
		// The project's versions may be unknown there, and go.sum here has the other sums.
		"GOSUMDB=off",
		// Another commit has other files of the same version. Those of one proxy share it.
		"GOMODCACHE="+filepath.Join(proxy, "cache"),
	)}
}

// write writes a file into the outsider's folder.
func (o *outsider) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(o.folder, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// goCommand runs go in the outsider's folder and returns what it printed.
func (o *outsider) goCommand(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = o.folder, o.env
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, log.String())
	}
	return string(out)
}

// graph returns the paths of all modules that go knows of in a program that requires
// modules and imports packages.
func (o *outsider) graph(t *testing.T, required []module.Version, imports ...string) []string {
	t.Helper()
	mod, program := "module example.com/outside\n\ngo 1.26.0\n\n", "package main\n\n"
	for _, m := range required {
		mod += "require " + m.String() + "\n"
	}
	for _, i := range imports {
		program += fmt.Sprintf("import _ %q\n", i)
	}
	o.write(t, "go.mod", strings.ReplaceAll(mod, "@", " "))
	o.write(t, "main.go", program+"\nfunc main() {}\n")
	o.goCommand(t, "list", "-deps", ".") // fails for a package that no module has
	return strings.Fields(o.goCommand(t, "list", "-m", "-f", "{{if not .Main}}{{.Path}}{{end}}", "all"))
}

// TestModulesServeThoseOutside builds programs outside the repository, with the
// project's modules as they would be published now.
func TestModulesServeThoseOutside(t *testing.T) {
	t.Parallel()
	root := strings.TrimSuffix(project, "/")
	modules := published(t)
	version := ""
	for m, folder := range modules {
		version = m.Version
		if file := readModule(t, folder); file.Module.Mod.Path != m.Path || len(file.Replace) > 0 {
			t.Errorf("%s is the module %s, with %d replacements, which nobody has who requires it; want %s without any",
				folder, file.Module.Mod.Path, len(file.Replace), m.Path)
		}
	}
	proxy := publish(t, modules)

	t.Run("a program has the client without the daemon's libraries", func(t *testing.T) {
		t.Parallel()
		var basis []module.Version
		for _, r := range readModule(t, filepath.Join(projectRoot, "client")).Require {
			if r.Mod.Path == "google.golang.org/grpc" || r.Mod.Path == "go.opentelemetry.io/otel/trace" {
				basis = append(basis, r.Mod)
			}
		}
		// gRPC's own graph has much that no program gets.
		usual := newOutsider(t, proxy).graph(t, basis, "google.golang.org/grpc", "go.opentelemetry.io/otel/trace")
		o := newOutsider(t, proxy)
		found := o.graph(t, []module.Version{{Path: root + "/client", Version: version}}, root+"/client")
		found = slices.DeleteFunc(found, func(m string) bool { return slices.Contains(usual, m) })
		want := []string{"github.com/felixge/httpsnoop", root + "/client", root + "/internal/bucket", root + "/proto", "go.uber.org/goleak"}
		if !slices.Equal(found, want) {
			t.Errorf("beside what gRPC has, the graph is\n%s\nwant\n%s", strings.Join(found, "\n"), strings.Join(want, "\n"))
		}
	})
	for m := range modules {
		if !strings.HasPrefix(m.Path, root+"/contrib/") {
			continue
		}
		t.Run("a program has "+m.Path, func(t *testing.T) {
			t.Parallel()
			if found := newOutsider(t, proxy).graph(t, []module.Version{m}, m.Path); slices.Contains(found, root) {
				t.Error("it needs the daemon's module")
			}
		})
	}
	t.Run("go install finds the daemon", func(t *testing.T) {
		t.Parallel()
		o := newOutsider(t, proxy)
		o.write(t, "go.mod", "module example.com/outside\n\ngo 1.26.0\n\nrequire "+root+" "+version+"\n")
		o.goCommand(t, "list", "-deps", root+"/cmd/ratelimitd")
	})
}

// What the page for callers shows takes the client from a clone into another module.
func TestDocumentedCloneHasTheClient(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs(projectRoot)
	if err != nil {
		t.Fatal(err)
	}
	o := newOutsider(t, t.TempDir())
	o.write(t, "go.mod", "module example.com/outside\n\ngo 1.26.0\n")
	o.write(t, "main.go", "package main\n\nimport _ \"github.com/ratelimitd/ratelimitd/client/httplimit\"\n\nfunc main() {}\n")
	cmd := exec.Command("sh", "-ec", strings.ReplaceAll(blockFrom(t, "docs/callers.md", "bash", "for m in "), "DIR", root))
	cmd.Dir, cmd.Env = o.folder, o.env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	o.goCommand(t, "list", "-deps", ".") // fails for a package that no module has
}
