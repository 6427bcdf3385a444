//go:build unix

package filestore

import "golang.org/x/sys/unix"

// mayWrite returns why this process may not create files in a folder, or nil.
func mayWrite(folder string) error { return unix.Access(folder, unix.W_OK|unix.X_OK) }
