package integration

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const project = "github.com/ratelimitd/ratelimitd/"

// goPackage is a package of the project, without its tests.
type goPackage struct {
	path    string   // in the repository
	imports []string // paths of those of the project, and import paths of others
}

// packages returns the packages that have code beside tests: of the daemon's module,
// and of those that it needs.
func packages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,GoFiles",
		"../...", "../client/...", "../internal/bucket/...", "../proto/...")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var found []goPackage
	for lines := json.NewDecoder(out); ; {
		var p struct {
			ImportPath       string
			Imports, GoFiles []string
		}
		if err := lines.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if len(p.GoFiles) == 0 {
			continue
		}
		g := goPackage{path: strings.TrimPrefix(p.ImportPath, project)}
		for _, i := range p.Imports {
			g.imports = append(g.imports, strings.TrimPrefix(i, project))
		}
		found = append(found, g)
	}
	if err := cmd.Wait(); err != nil || len(found) < 50 {
		t.Fatalf("%d packages, %v", len(found), err)
	}
	return found
}

// rooms returns the floor of each package that ARCHITECTURE.md lists, from 0, the
// uppermost.
func rooms(t *testing.T, page string) map[string]int {
	t.Helper()
	_, table, found := strings.Cut(page, "\n| package | is |\n|---|---|\n")
	if !found {
		t.Fatal("ARCHITECTURE.md has no table of packages")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	floors := make(map[string]int)
	for n, row := range strings.Split(table, "\n") {
		names, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " |")
		for _, name := range strings.Split(names, ", ") {
			name = strings.Trim(name, "`")
			if _, twice := floors[name]; twice {
				t.Errorf("%s is listed twice", name)
			}
			floors[name] = n
		}
	}
	return floors
}

// TestImportsGoDown holds the imports of all packages against the list in
// ARCHITECTURE.md, and its three rules.
func TestImportsGoDown(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	floors := rooms(t, string(text))
	isFor := func(path string) bool { // tests, what they build, tools, examples, and what is a part of a room
		return regexp.MustCompile(`(^|/)(build|integration|examples|deploy)(/|$)|test$`).MatchString(path)
	}
	floorOf := func(path string) (int, bool) {
		for {
			if floor, ok := floors[path]; ok {
				return floor, true
			}
			// A package of client or proto that is not listed is a part of those.
			cut := strings.LastIndexByte(path, '/')
			if cut < 0 || strings.HasPrefix(path, "internal/") {
				return 0, false
			}
			path = path[:cut]
		}
	}
	seen := make(map[string]bool)
	for _, p := range packages(t) {
		if isFor(p.path) {
			continue
		}
		seen[p.path] = true
		floor, listed := floorOf(p.path)
		if !listed {
			t.Errorf("ARCHITECTURE.md does not list %s", p.path)
			continue
		}
		for _, i := range p.imports {
			switch below, ok := floorOf(i); {
			case isFor(i) && (strings.HasPrefix(i, "internal/") || strings.HasPrefix(i, "client/")):
				t.Errorf("%s imports %s, which is for tests", p.path, i)
			case ok && below < floor:
				t.Errorf("%s imports %s, which stands above it", p.path, i)
			}
		}
		p.holdRules(t)
	}
	for name := range floors {
		if strings.HasPrefix(name, "internal/") && !seen[name] {
			t.Errorf("ARCHITECTURE.md lists %s, which is none", name)
		}
	}
}

// holdRules checks the rules that hold whatever the rooms are called.
func (p goPackage) holdRules(t *testing.T) {
	t.Helper()
	imports := func(forbidden ...string) {
		for _, i := range p.imports {
			if slices.ContainsFunc(forbidden, func(f string) bool { return i == f || strings.HasPrefix(i, f+"/") }) {
				t.Errorf("%s imports %s", p.path, i)
			}
		}
	}
	const protobuf, redis, api = "google.golang.org/protobuf", "github.com/redis/go-redis", "proto"
	switch {
	case p.path == "internal/bucket":
		imports(protobuf, redis, api, "internal")
	case regexp.MustCompile(`^internal/(bucket|redisstore|fallback)(/|$)`).MatchString(p.path):
		imports("internal/config")
	case strings.HasPrefix(p.path, "internal/config/"):
		imports("internal/bucket/memstore", "internal/redisstore")
	}
	isProtocol := p.path == "internal/config/xds" || regexp.MustCompile(`^internal/(server|cli)(/|$)`).MatchString(p.path)
	if strings.HasPrefix(p.path, "internal/") && !isProtocol {
		imports("github.com/envoyproxy", api)
	}
	if p.path == "internal/decide" {
		imports(protobuf, "google.golang.org/grpc")
	}
}
