package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// machine is a folder that dpkg takes for a machine: nothing of this one changes.
type machine struct {
	t    *testing.T
	root string
}

// newMachine returns one that has systemd, and no packages else.
func newMachine(t *testing.T) machine {
	t.Helper()
	for _, program := range []string{"dpkg", "systemd-sysusers", "deb-systemd-helper"} {
		need(t, program)
	}
	if os.Getuid() != 0 {
		t.Skip("dpkg needs root")
	}
	m := machine{t: t, root: t.TempDir()}
	if err := os.Chmod(m.root, 0o755); err != nil { // for the user of the daemon
		t.Fatal(err)
	}
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log", "etc", "run", "tmp"} {
		if err := os.MkdirAll(filepath.Join(m.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
	m.write("etc/group", "root:x:0:\n")
	m.write("var/lib/dpkg/status", "Package: systemd\nStatus: install ok installed\nVersion: 252\nArchitecture: amd64\nMaintainer: x <x@example.com>\nDescription: x\n")
	return m
}

func (m machine) write(name, text string) {
	m.t.Helper()
	write(m.t, filepath.Join(m.root, name), []byte(text), 0o644)
}

func (m machine) read(name string) string {
	m.t.Helper()
	text, err := os.ReadFile(filepath.Join(m.root, name))
	if err != nil {
		m.t.Error(err)
	}
	return string(text)
}

// dpkg runs dpkg on the machine.
func (m machine) dpkg(args ...string) {
	m.t.Helper()
	// Scripts run here, and are told where the machine is: it has no shell.
	all := append([]string{"--root=" + m.root, "--force-script-chrootless", "--force-confdef", "--force-confold"}, args...)
	cmd := exec.Command("dpkg", all...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	if out, err := cmd.CombinedOutput(); err != nil {
		m.t.Fatalf("dpkg %q: %v\n%s", args, err, out)
	}
}

// files returns the files and links of the machine that have the package's name in their
// paths, apart from what dpkg knows of them.
func (m machine) files() (names []string) {
	m.t.Helper()
	err := filepath.WalkDir(m.root, func(path string, entry os.DirEntry, err error) error {
		name := strings.TrimPrefix(path, m.root)
		if err == nil && !entry.IsDir() && strings.Contains(name, "ratelimitd") && !strings.HasPrefix(name, "/var/lib/dpkg/") {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return names
}

// checkMan compares the manual page, as a terminal shows it, with the help of a command.
func (m machine) checkMan() {
	m.t.Helper()
	need(m.t, "groff")
	compressed, err := gzip.NewReader(strings.NewReader(m.read("usr/share/man/man1/ratelimitd.1.gz")))
	if err != nil {
		m.t.Fatal(err)
	}
	cmd := exec.Command("groff", "-man", "-Tascii", "-ww", "-P-c", "-P-b", "-P-u")
	cmd.Stdin = compressed
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	shown, err := cmd.Output()
	if err != nil || complaints.Len() > 0 {
		m.t.Errorf("groff: %v\n%s", err, &complaints)
	}
	help, err := exec.Command(filepath.Join(m.root, "usr/bin/ratelimitd"), "take", "--help").Output()
	if err != nil {
		m.t.Fatal(err)
	}
	for line := range strings.Lines(string(help)) {
		if line = strings.TrimSpace(line); !strings.Contains(string(shown), line) {
			m.t.Errorf("the manual page lacks %q", line)
		}
	}
	for _, heading := range []string{"NAME\n", "\nratelimitd serve\n", "\nratelimitd version\n"} {
		if !strings.Contains(string(shown), heading) {
			m.t.Errorf("the manual page lacks %q:\n%s", heading, shown)
		}
	}
}

// serve runs the daemon as its unit does: the command and the user, with other ports. It
// returns the lines of its log, and what sends a signal and waits for the end.
func (m machine) serve() (serving string, reload func(), stop func()) {
	m.t.Helper()
	uid, gid := m.user()
	state := filepath.Join(m.root, "var/lib/ratelimitd") // the unit's StateDirectory
	if err := os.MkdirAll(state, 0o750); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Chown(state, int(uid), int(gid)); err != nil {
		m.t.Fatal(err)
	}
	words := m.command()
	cmd := exec.Command(words[0], append(words[1:], "--grpc-address=127.0.0.1:0", "--http-address=127.0.0.1:0", "--admin-address=127.0.0.1:0")...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: m.root, Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	cmd.Dir, cmd.Env = "/", []string{}
	log, err := cmd.StderrPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewScanner(log)
	wait := func(text string) string {
		m.t.Helper()
		var seen []string
		for lines.Scan() {
			seen = append(seen, lines.Text())
			if strings.Contains(lines.Text(), text) {
				return lines.Text()
			}
		}
		m.t.Fatalf("the daemon does not log %q:\n%s", text, strings.Join(seen, "\n"))
		return ""
	}
	reload = func() {
		m.t.Helper()
		_ = cmd.Process.Signal(syscall.SIGHUP) // as ExecReload
		wait("SIGHUP")
	}
	stop = func() {
		m.t.Helper()
		began := time.Now()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		wait("msg=stopped")
		if err := cmd.Wait(); err != nil {
			m.t.Errorf("the daemon ends with %v", err)
		}
		if limit := m.stopTimeout(); time.Since(began) > limit {
			m.t.Errorf("the end takes %s, and the unit allows %s", time.Since(began), limit)
		}
	}
	return wait("msg=serving"), reload, stop
}

// setting returns a value of the installed unit.
func (m machine) setting(name string) string {
	m.t.Helper()
	for line := range strings.Lines(m.read("usr/lib/systemd/system/ratelimitd.service")) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok {
			return value
		}
	}
	m.t.Fatalf("the unit has no %s", name)
	return ""
}

func (m machine) command() []string { return strings.Fields(m.setting("ExecStart")) }

func (m machine) stopTimeout() time.Duration {
	m.t.Helper()
	d, err := time.ParseDuration(m.setting("TimeoutStopSec"))
	if err != nil {
		m.t.Fatal(err)
	}
	return d
}

// user returns the numbers of the unit's user.
func (m machine) user() (uid, gid uint32) {
	m.t.Helper()
	name := m.setting("User")
	for line := range strings.Lines(m.read("etc/passwd")) {
		fields := strings.Split(line, ":")
		if fields[0] != name {
			continue
		}
		u, errU := strconv.ParseUint(fields[2], 10, 32)
		g, errG := strconv.ParseUint(fields[3], 10, 32)
		if errU != nil || errG != nil || u == 0 || u >= 1000 || !strings.HasSuffix(strings.TrimSpace(line), "/nologin") {
			m.t.Fatalf("the user is %s", line)
		}
		return uint32(u), uint32(g)
	}
	m.t.Fatalf("there is no user %s:\n%s", name, m.read("etc/passwd"))
	return 0, 0
}

// packageOf returns the package of a version with a binary.
func packageOf(t *testing.T, version string, binary []byte) (path string) {
	t.Helper()
	root, err := filepath.Abs(projectRoot)
	if err != nil {
		t.Fatal(err)
	}
	said := new(strings.Builder)
	r := release{repo: repository{root: root, time: testTime}, version: version, platforms: []platform{{"linux", host.arch}}, out: said}
	r.build = func(_ string, _ platform, to string) error { return os.WriteFile(to, binary, 0o755) }
	if err := r.writePackages(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(said.String())
}

// The package is installed, its daemon runs as its unit says, and what people have
// changed survives an upgrade and a removal, but not a purge.
func TestPackageIsInstalledUpgradedAndPurged(t *testing.T) {
	m := newMachine(t)
	m.dpkg("--install", packageOf(t, "v1.2.3-rc.1", must(t, testBinary)))
	want := []string{
		"/etc/ratelimitd/limits/api.yaml",
		"/etc/ratelimitd/ratelimitd.yaml",
		"/etc/systemd/system/multi-user.target.wants/ratelimitd.service",
		"/usr/bin/ratelimitd",
		"/usr/lib/systemd/system/ratelimitd.service",
		"/usr/lib/sysusers.d/ratelimitd.conf",
		"/usr/share/bash-completion/completions/ratelimitd",
		"/usr/share/doc/ratelimitd/README.md",
		"/usr/share/doc/ratelimitd/copyright",
		"/usr/share/doc/ratelimitd/ratelimitd.yaml",
		"/usr/share/fish/vendor_completions.d/ratelimitd.fish",
		"/usr/share/man/man1/ratelimitd.1.gz",
		"/usr/share/zsh/vendor-completions/_ratelimitd",
	}
	for _, name := range want {
		if !slices.Contains(m.files(), name) {
			t.Errorf("the package does not install %s:\n%q", name, m.files())
		}
	}

	m.checkMan()
	serving, reload, stop := m.serve()
	if !strings.Contains(serving, "grpc=127.0.0.1:") || !strings.Contains(serving, "admin=127.0.0.1:") {
		t.Errorf("the daemon says %s", serving)
	}
	reload()
	stop()

	edited := strings.Replace(m.read("etc/ratelimitd/limits/api.yaml"), "requests: 10", "requests: 11", 1)
	m.write("etc/ratelimitd/limits/api.yaml", edited)
	m.write("etc/ratelimitd/limits/own.yaml", "domain: own\n")
	m.write("var/lib/ratelimitd/assignments.db", "state")
	m.dpkg("--install", packageOf(t, "v1.2.3", must(t, smallBinary)))
	if m.read("etc/ratelimitd/limits/api.yaml") != edited || m.read("var/lib/ratelimitd/assignments.db") != "state" {
		t.Error("an upgrade changes what was edited, or state")
	}
	out, err := exec.Command("dpkg-query", "--admindir="+filepath.Join(m.root, "var/lib/dpkg"), "-W", "ratelimitd").Output()
	if err != nil || string(out) != "ratelimitd\t1.2.3\n" {
		t.Errorf("after an upgrade dpkg knows %q, %v", out, err)
	}

	m.dpkg("--remove", "ratelimitd")
	left := []string{"/etc/ratelimitd/limits/api.yaml", "/etc/ratelimitd/limits/own.yaml", "/etc/ratelimitd/ratelimitd.yaml", "/var/lib/ratelimitd/assignments.db"}
	for _, name := range left {
		if !slices.Contains(m.files(), name) {
			t.Errorf("a removal takes %s", name)
		}
	}
	if slices.Contains(m.files(), "/usr/bin/ratelimitd") {
		t.Error("a removal leaves the binary")
	}
	m.dpkg("--purge", "ratelimitd")
	if got := m.files(); !slices.Equal(got, []string{"/etc/ratelimitd/limits/own.yaml"}) {
		t.Errorf("a purge leaves %q, want what people added", got)
	}
}

// What the package says of itself, and what is as Debian wants it.
func TestPackageSaysWhatItIs(t *testing.T) {
	need(t, "dpkg-deb")
	path := packageOf(t, "v1.2.3", must(t, smallBinary))
	if name := "ratelimitd_1.2.3_" + host.arch + ".deb"; filepath.Base(path) != name {
		t.Errorf("its file is %s, want %s", path, name)
	}
	out, err := exec.Command("dpkg-deb", "--field", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"Package: ratelimitd\n", "Version: 1.2.3\n", fmt.Sprintf("Architecture: %s\n", host.arch), "Depends: systemd | systemd-standalone-sysusers", "Description: rate-limit service"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the package lacks %q:\n%s", want, out)
		}
	}
	dir := t.TempDir()
	if out, err := exec.Command("dpkg-deb", "--control", path, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	conffiles, err := os.ReadFile(filepath.Join(dir, "conffiles"))
	if err != nil || string(conffiles) != "/etc/ratelimitd/limits/api.yaml\n/etc/ratelimitd/ratelimitd.yaml\n" {
		t.Errorf("conffiles are %q, %v", conffiles, err)
	}
	list, err := exec.Command("dpkg-deb", "--contents", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, list)
	}
	for line := range strings.Lines(string(list)) {
		fields := strings.Fields(line)
		isExecutable := strings.HasSuffix(fields[5], "/usr/bin/ratelimitd") || fields[0][0] == 'd'
		if fields[1] != "root/root" || fields[0][1:] != "rw-r--r--" && !isExecutable || fields[0][1:] != "rwxr-xr-x" && isExecutable {
			t.Errorf("a file of the package is %s", line)
		}
	}
}
