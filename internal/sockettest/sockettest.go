// Package sockettest makes folders for sockets. It imports nothing of the
// project.
package sockettest

import (
	"os"
	"testing"
)

// Folder returns a folder that ends with the test. Its name is short whatever
// the test is called: a socket's path may have only some 100 bytes.
func Folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sock-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
