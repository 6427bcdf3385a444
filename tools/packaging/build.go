package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// platform is what a binary runs on.
type platform struct{ os, arch string }

// String returns linux_amd64.
func (p platform) String() string { return p.os + "_" + p.arch }

var (
	allPlatforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}
	host         = platform{runtime.GOOS, runtime.GOARCH}
)

// build builds the daemon. The binary depends on the source, the version, the platform and
// the release of Go alone: not on folders, time, nor who builds.
func (r repository) build(version string, p platform, to string) error {
	return r.buildWith("", version, p, to)
}

// buildWith is build with a value of GOFLAGS, which makes another binary.
func (r repository) buildWith(goflags, version string, p platform, to string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -X main.version="+version, "-o", to, "./cmd/ratelimitd")
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "GOWORK="+filepath.Join(r.root, "go.work"), "GOFLAGS="+goflags, "CGO_ENABLED=0",
		"GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build for %s: %w\n%s", p, err, out)
	}
	return nil
}

// shells are those that have completions, with the file that each shell looks for.
var shells = []struct{ name, file, debian string }{
	{"bash", "ratelimitd.bash", "/usr/share/bash-completion/completions/ratelimitd"},
	{"zsh", "_ratelimitd", "/usr/share/zsh/vendor-completions/_ratelimitd"},
	{"fish", "ratelimitd.fish", "/usr/share/fish/vendor_completions.d/ratelimitd.fish"},
}

// completions returns the script of each shell, as a binary of this machine prints them.
func completions(binary string) (scripts map[string][]byte, err error) {
	scripts = make(map[string][]byte)
	for _, s := range shells {
		if scripts[s.name], err = printed(binary, "completion", s.name); err != nil {
			return nil, err
		}
	}
	return scripts, nil
}

// printed returns what a command prints without settings of this machine.
func printed(binary string, args ...string) ([]byte, error) {
	cmd := exec.Command(binary, args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "RATELIMITD_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("ratelimitd %q: %w", args, err)
	}
	return out, nil
}
