package filestore

import "golang.org/x/sys/unix"

// letGoOf has the process let go of the pages of a file that is mapped for reading. It
// reads them again where it needs them. Where that fails they stay.
func letGoOf(address uintptr, size int64) {
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, address, uintptr(size), unix.MADV_DONTNEED)
}
