package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
)

// listen returns a function that says how busy other processes have kept the
// machine since.
func (l *lab) listen() func() string {
	began, ours := time.Now(), l.spent()
	before, err := busy()
	return func() string {
		after, errAfter := busy()
		if errors.Join(err, errAfter) != nil {
			return "what else ran is not known"
		}
		all := time.Since(began) * time.Duration(runtime.NumCPU())
		others := (after - before) - (l.spent() - ours)
		return fmt.Sprintf("other processes used %.0f%% of the processors", 100*max(0, others.Seconds()/all.Seconds()))
	}
}

// spent is the processor time of this program and all servers it started.
func (l *lab) spent() (all time.Duration) {
	pids := []int{os.Getpid(), l.bare.pid(), l.bareTuned.pid()}
	for _, d := range l.daemons {
		pids = append(pids, d.process.pid())
	}
	for _, r := range l.redis {
		for _, s := range r.servers {
			pids = append(pids, s.pid())
		}
	}
	for _, c := range l.compared {
		if c.pid != 0 {
			pids = append(pids, c.pid)
		}
	}
	for _, pid := range pids {
		if used, err := cpuTime(pid); err == nil {
			all += used
		}
	}
	return all
}
