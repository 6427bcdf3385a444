package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the processor time that a process has used, in all its threads,
// including those that ended. The kernel counts it in nanoseconds.
func cpuTime(pid int) (time.Duration, error) {
	// The number of a process's clock, as clock_getcpuclockid(3) computes it.
	const scheduled = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &t); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// resident returns the bytes of memory that a process has.
func resident(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/%d/statm: found %q", pid, text)
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// busy returns the processor time that the machine has spent on anything.
func busy() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	// cpu user nice system idle iowait irq softirq steal, in 1/100 s.
	fields := bytes.Fields(line)
	if len(fields) < 9 {
		return 0, fmt.Errorf("/proc/stat: found %q", line)
	}
	var ticks int64
	for _, i := range []int{1, 2, 3, 6, 7, 8} {
		n, err := strconv.ParseInt(string(fields[i]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// dieWithParent returns the attributes of a child that the kernel kills with the thread
// that started it.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// sleeper returns a function that sleeps to within some tens of microseconds,
// where the runtime's timers may be a millisecond late. It belongs to the
// calling goroutine, which keeps its thread.
func sleeper() func(time.Duration) {
	runtime.LockOSThread()
	// Best effort: without it a sleep is 50 us longer.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	return func(d time.Duration) {
		t := syscall.NsecToTimespec(int64(d))
		_ = syscall.Nanosleep(&t, nil) // a caller that wakes early sleeps again
	}
}
