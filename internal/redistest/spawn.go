//go:build unix

package redistest

import (
	"os/exec"
	"runtime"
	"sync"
)

// spawner starts child processes from one thread. The kernel kills a child
// with a parent-death signal when the thread that forked it ends, not the
// process, so that thread must be one that never ends: a goroutine that lives
// as long as the process is locked to it.
var spawner = sync.OnceValue(func() chan<- spawning {
	c := make(chan spawning)
	go func() {
		runtime.LockOSThread()
		for s := range c {
			s.err <- s.cmd.Start()
		}
	}()
	return c
})

type spawning struct {
	cmd *exec.Cmd
	err chan error
}

// spawn starts cmd as a child that does not outlive this process, where the
// system can see to that.
func spawn(cmd *exec.Cmd) error {
	dieWithParent(cmd)
	s := spawning{cmd: cmd, err: make(chan error, 1)}
	spawner() <- s
	return <-s.err
}
