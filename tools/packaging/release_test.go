package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
)

// Whoever builds a version, in whatever folder, gets the same bytes. The compiler's cache
// serves both builds, since with -trimpath its keys have no folders; both are linked, and
// neither folder may be in the binary. One platform is built: that archives and packages
// of the others are the same is TestReleaseHasAllPlatforms.
func TestReleaseIsReproducible(t *testing.T) {
	var releases [2]map[string][]byte
	for i, mode := range []os.FileMode{0o644, 0o600} {
		tree := filepath.Join(t.TempDir(), fmt.Sprint("tree", i))
		repo := copyTree(t, tree, mode)
		t.Setenv("TZ", []string{"UTC", "Asia/Tokyo"}[i])
		r := release{repo: repo, version: testVersion, platforms: []platform{host}, out: new(strings.Builder)}
		r.build = func(version string, p platform, to string) error { return repo.buildWith(plain, version, p, to) }
		releases[i] = writeRelease(t, r)
		for name, data := range releases[i] {
			if bytes.Contains(unpacked(t, name, data)["ratelimitd"], []byte(tree)) {
				t.Errorf("%s has the folder of the build in it", name)
			}
		}
	}
	for name, data := range releases[0] {
		if other := releases[1][name]; !bytes.Equal(data, other) {
			t.Errorf("%s is another from another folder: %x and %x", name, sha256.Sum256(data), sha256.Sum256(other))
		}
	}
	if !slices.Equal(slices.Sorted(maps.Keys(releases[0])), slices.Sorted(maps.Keys(releases[1]))) {
		t.Error("there are other files from another folder")
	}

	files := unpacked(t, "ratelimitd_1.2.3_"+host.String()+".tar.gz", releases[0]["ratelimitd_1.2.3_"+host.String()+".tar.gz"])
	program := filepath.Join(t.TempDir(), "ratelimitd")
	write(t, program, files["ratelimitd"], 0o755)
	if out, err := exec.Command(program, "version").Output(); err != nil || !strings.HasPrefix(string(out), "ratelimitd v1.2.3 ") {
		t.Errorf("version prints %q, %v", out, err)
	}
	checkModules(t, releases[0]["ratelimitd_1.2.3_"+host.String()+".cdx.json"])
}

// writeRelease writes a release, checks its sums, and returns its files.
func writeRelease(t *testing.T, r release) map[string][]byte {
	t.Helper()
	folder := filepath.Join(t.TempDir(), r.version)
	if err := r.write(folder); err != nil {
		t.Fatal(err)
	}
	all := make(map[string][]byte)
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if all[e.Name()], err = os.ReadFile(filepath.Join(folder, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	if lines := bytes.Count(all["SHA256SUMS"], []byte("\n")); lines != len(all)-1 {
		t.Errorf("%d sums of %d files", lines, len(all)-1)
	}
	for name, data := range all {
		if line := fmt.Sprintf("%x  %s\n", sha256.Sum256(data), name); name != "SHA256SUMS" && !strings.Contains(string(all["SHA256SUMS"]), line) {
			t.Errorf("SHA256SUMS lacks %s", line)
		}
	}
	return all
}

// unpacked returns the files of an archive by their names below its folder, and checks
// what says nothing of this machine. It returns nothing of other files.
func unpacked(t *testing.T, name string, data []byte) map[string][]byte {
	t.Helper()
	folder, isArchive := strings.CutSuffix(name, ".tar.gz")
	if !isArchive {
		return nil
	}
	plain, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string][]byte)
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "root" || h.Gname != "root" || !h.ModTime.Equal(testTime) {
			t.Errorf("%s: %s is of %d:%d at %s", name, h.Name, h.Uid, h.Gid, h.ModTime)
		}
		isProgram := h.Name == folder+"/ratelimitd" || h.Typeflag == tar.TypeDir
		if h.Mode != 0o644 && !isProgram || h.Mode != 0o755 && isProgram {
			t.Errorf("%s: %s has the mode %o", name, h.Name, h.Mode)
		}
		below, ok := strings.CutPrefix(h.Name, folder+"/")
		if !ok {
			t.Errorf("%s: %s is not in the archive's folder", name, h.Name)
		}
		if h.Typeflag == tar.TypeReg {
			if files[below], err = io.ReadAll(r); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A release has everything for each platform, the same at each try. A small program stands
// for all binaries: it takes minutes to build them.
func TestReleaseHasAllPlatforms(t *testing.T) {
	repo := copyTree(t, t.TempDir(), 0o644)
	said, binary := new(strings.Builder), must(t, smallBinary)
	r := release{repo: repo, version: testVersion, platforms: allPlatforms, out: said}
	r.build = func(_ string, _ platform, to string) error { return os.WriteFile(to, binary, 0o755) }
	all := writeRelease(t, r)
	want := []string{"SHA256SUMS"}
	for _, p := range []string{"darwin_amd64", "darwin_arm64", "linux_amd64", "linux_arm64"} {
		want = append(want, "ratelimitd_1.2.3_"+p+".cdx.json", "ratelimitd_1.2.3_"+p+".tar.gz")
	}
	want = append(want, "ratelimitd_1.2.3_amd64.deb", "ratelimitd_1.2.3_arm64.deb")
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, want) {
		t.Errorf("the release has %q, want %q", got, want)
	}
	again := writeRelease(t, r)
	for name, data := range all {
		if !bytes.Equal(data, again[name]) {
			t.Errorf("%s is another at the second try", name)
		}
	}

	for name, data := range all {
		files := unpacked(t, name, data)
		if files == nil {
			continue
		}
		for _, f := range []string{"ratelimitd", "README.md", "ratelimitd.yaml", "limits/api.yaml", "completions/ratelimitd.bash", "completions/_ratelimitd", "completions/ratelimitd.fish"} {
			if len(files[f]) == 0 {
				t.Errorf("%s lacks %s", name, f)
			}
		}
		for _, f := range []string{"systemd/ratelimitd.service", "systemd/sysusers.conf"} {
			if _, has := files[f]; has != strings.Contains(name, "linux") {
				t.Errorf("%s has %s: %t", name, f, has)
			}
		}
	}
	const tags = "are v1.2.3 client/v1.2.3 contrib/clientmetrics/v1.2.3 contrib/fiberlimit/v1.2.3 contrib/ginlimit/v1.2.3 internal/bucket/v1.2.3 proto/v1.2.3.\n"
	if !strings.Contains(said.String(), tags) || !strings.Contains(said.String(), "  git push --atomic origin v1.2.3 client/v1.2.3 ") {
		t.Errorf("it does not say which tags the version has:\n%s", said)
	}
}

// checkModules checks that a list of modules has those of go.mod, with their sums.
func checkModules(t *testing.T, text []byte) {
	t.Helper()
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(text), cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	const root = "github.com/ratelimitd/ratelimitd"
	if c := bom.Metadata.Component; c.Name != root || c.Version != testVersion || c.Hashes == nil || bom.Metadata.Timestamp != "2026-01-02T03:04:05Z" {
		t.Errorf("it is of %+v at %s", c, bom.Metadata.Timestamp)
	}
	versions := make(map[string]string)
	for _, c := range *bom.Components {
		versions[c.Name] = c.Version
		own := strings.HasPrefix(c.Name, root+"/")
		if own && c.Version != testVersion || !own && c.Name != "std" && c.Hashes == nil || c.PackageURL != "pkg:golang/"+c.Name+"@"+c.Version {
			t.Errorf("a component is %+v", c)
		}
	}
	for _, name := range []string{"std", root + "/client", root + "/proto", "google.golang.org/grpc", "github.com/redis/go-redis/v9", "go.etcd.io/bbolt"} {
		if versions[name] == "" {
			t.Errorf("it lacks %s", name)
		}
	}
	// What only tests need is in no binary.
	if versions["github.com/testcontainers/testcontainers-go"] != "" {
		t.Error("it has a module that only tests need")
	}
}

// A tree that is not the version is refused, with what to do.
func TestReleaseRefusesWhatIsNoRelease(t *testing.T) {
	repo := copyTree(t, t.TempDir(), 0o644)
	built := false
	r := release{repo: repo, version: testVersion, out: new(strings.Builder), build: func(string, platform, string) error {
		built = true
		return errors.New("built")
	}}
	refused := func(want ...string) {
		t.Helper()
		built = false
		err := r.write(filepath.Join(t.TempDir(), "out"))
		if err == nil || built {
			t.Fatalf("it is built: %v", err)
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("the error is\n%v\nwant %q", err, w)
			}
		}
	}

	write(t, filepath.Join(repo.root, "new.txt"), nil, 0o644)
	refused("this tree is not v1.2.3:", "1 files differ from the commit (?? new.txt); commit or stash them", "AS_IT_IS=1")
	r.asItIs = true
	if err := r.write(filepath.Join(t.TempDir(), "out")); err == nil || !built || !strings.Contains(fmt.Sprint(r.out), "warning: this tree is not v1.2.3:") {
		t.Errorf("as it is it gives %v, %t: %s", err, built, r.out)
	}
	r.asItIs = false
	commit(t, repo.root)

	r.version = "v1.2.4"
	refused("lines name other versions of the project's modules, such as: client/go.mod requires github.com/ratelimitd/ratelimitd/internal/bucket@v1.2.3; make set-version VERSION=v1.2.4")
	r.version = testVersion

	git(t, repo.root, "tag", "client/v1.2.3")
	write(t, filepath.Join(repo.root, "more.txt"), nil, 0o644)
	commit(t, repo.root)
	refused("the tag client/v1.2.3 is at the commit ")
}

// set-version changes nothing but the versions of the project's own modules.
func TestSetVersionChangesVersionsAlone(t *testing.T) {
	repo := copyTree(t, t.TempDir(), 0o644)
	if err := run([]string{"set-version", "-root", repo.root, "-version", "v1.9.0-rc.1"}, new(strings.Builder)); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(git(t, repo.root, "diff", "--unified=0"), "\n") {
		isChange := strings.HasPrefix(line, "+\t") || strings.HasPrefix(line, "-\t")
		if isChange && !strings.Contains(line, "github.com/ratelimitd/ratelimitd") {
			t.Errorf("it changes %s", line)
		}
	}
	work, err := readWorkspace(repo.root)
	if err != nil {
		t.Fatal(err)
	}
	if found := work.otherVersions("v1.9.0-rc.1"); len(found) > 0 {
		t.Errorf("there are other versions: %q", found)
	}
	cmd := exec.Command("go", "list", "-m")
	cmd.Dir, cmd.Env = repo.root, append(os.Environ(), "GOWORK=", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "github.com/ratelimitd/ratelimitd/proto\n") {
		t.Errorf("go list -m: %v\n%s", err, out)
	}
}

func TestVersionsAreThoseThatModulesCanHave(t *testing.T) {
	for _, good := range []string{"v0.1.0", "v1.2.3", "v1.2.3-rc.1"} {
		if got, err := parseVersion(good); err != nil || got != good {
			t.Errorf("%s: %q, %v", good, got, err)
		}
	}
	for bad, want := range map[string]string{
		"":                                   `found the version ""; allowed: VERSION=vMAJOR.MINOR.PATCH, such as v1.2.3`,
		"1.2.3":                              "allowed: VERSION=v",
		"v1.2":                               "allowed: VERSION=v",
		"v1.2.3+build":                       "allowed: VERSION=v",
		"3d3f91c-dirty":                      "allowed: VERSION=v",
		"v0.0.0-20260928230214-8a89bd6388cc": "allowed: VERSION=v",
		"v2.0.0":                             "paths that end in /v2; allowed with those that they have: v0 and v1",
	} {
		if _, err := parseVersion(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", bad, err, want)
		}
	}
}

// A folder that is no release is not removed for one.
func TestReleaseReplacesReleasesAlone(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "precious"), []byte("x"), 0o644)
	if err := writeAll(dir, []file{{name: "SHA256SUMS"}}); err == nil {
		t.Error("a folder with other files is replaced")
	}
	if _, err := os.Stat(filepath.Join(dir, "precious")); err != nil {
		t.Error(err)
	}
}
