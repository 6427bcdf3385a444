// Package filetest makes files and folders for tests. It imports nothing of the
// project.
package filetest

import (
	"os"
	"path/filepath"
	"testing"
)

// Write makes a file with its folders and returns its path.
func Write(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Link makes a symbolic link.
func Link(t testing.TB, target, name string) {
	t.Helper()
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
}

// SocketFolder makes a folder that ends with the test, and returns its path. Its
// name is short whatever the test is called: a socket's path may have only some
// 100 bytes.
func SocketFolder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sock-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
