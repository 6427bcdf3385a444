//go:build !unix

package filestore

// mayWrite does not know here.
func mayWrite(string) error { return nil }
