package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
)

// noise is how busy other processes kept the machine while all was measured.
type noise struct {
	others, all time.Duration // processor time
	unknown     bool
}

// listen returns a function that adds what happened since to the noise. The lab
// must still be open then.
func (n *noise) listen(l *lab) func() {
	began, ours := time.Now(), l.spent()
	before, err := busy()
	return func() {
		after, errAfter := busy()
		if errors.Join(err, errAfter) != nil {
			n.unknown = true
		}
		n.all += time.Since(began) * time.Duration(runtime.NumCPU())
		n.others += (after - before) - (l.spent() - ours)
	}
}

func (n noise) String() string {
	if n.unknown {
		return "what else ran is not known"
	}
	return fmt.Sprintf("other processes used %.0f%% of the processors", 100*max(0, n.others.Seconds()/n.all.Seconds()))
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
