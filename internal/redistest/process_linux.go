package redistest

import "syscall"

// dieWithParent has the kernel end a child when this process has ended.
var dieWithParent = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
