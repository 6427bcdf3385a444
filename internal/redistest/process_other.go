//go:build unix && !linux

package redistest

import "syscall"

// dieWithParent does nothing: there is no parent-death signal here.
var dieWithParent *syscall.SysProcAttr
