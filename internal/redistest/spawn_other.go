//go:build unix && !linux

package redistest

import "os/exec"

// dieWithParent does nothing: there is no parent-death signal here.
func dieWithParent(*exec.Cmd) {}
