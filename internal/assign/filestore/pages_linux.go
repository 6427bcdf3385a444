package filestore

import "golang.org/x/sys/unix"

// letGoOf releases the process's pages of a file that is mapped for reading. They are
// read again where needed. If releasing them fails, they stay.
func letGoOf(address uintptr, size int64) {
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, address, uintptr(size), unix.MADV_DONTNEED)
}
