//go:build unix

package redistest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// owner identifies a process, on the containers and directories that it made, so
// that another process can find out whether it still lives.
type owner struct {
	// host identifies the machine, its boot and its process namespace, within
	// which pid is unique.
	host string
	pid  int
	// born distinguishes processes with the same pid. It is the start time in
	// /proc/PID/stat, and empty without that.
	born string
}

var self = sync.OnceValue(func() owner {
	return owner{host: hostID(), pid: os.Getpid(), born: born(os.Getpid())}
})

func (o owner) String() string {
	return fmt.Sprintf("%s.%d.%s", o.host, o.pid, o.born)
}

// parseOwner undoes String.
func parseOwner(s string) (owner, bool) {
	parts := strings.Split(s, ".")
	if len(parts) != 3 {
		return owner{}, false
	}
	pid, err := strconv.Atoi(parts[1])
	if err != nil || pid <= 0 {
		return owner{}, false
	}
	return owner{host: parts[0], pid: pid, born: parts[2]}, true
}

// dead reports whether the process has certainly ended. For a process on another
// host that is never certain.
func (o owner) dead() bool {
	if o.host != self().host {
		return false
	}
	if errors.Is(syscall.Kill(o.pid, 0), syscall.ESRCH) {
		return true
	}
	now := born(o.pid)
	return now != "" && now != o.born
}

func hostID() string {
	name, _ := os.Hostname()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	pidns, _ := os.Readlink("/proc/self/ns/pid")
	sum := sha256.Sum256([]byte(name + "\n" + string(boot) + "\n" + pidns))
	return fmt.Sprintf("%x", sum[:6])
}

// born returns the start time of a process, in ticks since boot.
func born(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The name, in parentheses, may hold anything. The state, field 3, comes
	// first after it, and the start time is field 22.
	_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}

// base returns the directory that holds everything of this package: the
// servers' directories and the file of port locks. Test processes of one user
// share it.
var base = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("redistest-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the directory of test servers: %w", err)
	}
	removeDirsOfTheDead(dir)
	return dir, nil
})

// removeDirsOfTheDead removes the directories of processes that ended without
// removing them. It is best effort: another process may do the same.
func removeDirsOfTheDead(base string) {
	entries, _ := os.ReadDir(base)
	for _, e := range entries {
		name, _, ok := strings.Cut(e.Name(), "-")
		if !ok {
			continue
		}
		if o, ok := parseOwner(name); ok && o.dead() {
			_ = os.RemoveAll(filepath.Join(base, e.Name()))
		}
	}
}

// newDir makes a directory of this process.
func newDir() (string, error) {
	b, err := base()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(b, self().String()+"-*")
	if err != nil {
		return "", fmt.Errorf("make a server's directory: %w", err)
	}
	return dir, nil
}
