package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// machine describes where the numbers come from, in one line.
func machine(ctx context.Context) string {
	return fmt.Sprintf("%d cores of %s, %s, %s", runtime.NumCPU(), processor(), runtime.Version(), redisVersion(ctx))
}

func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(text)) {
		if name, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(model)
		}
	}
	return runtime.GOARCH
}

func redisVersion(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "redis-server", "--version").Output()
	if err != nil {
		return "no Redis"
	}
	for word := range strings.FieldsSeq(string(out)) {
		if v, ok := strings.CutPrefix(word, "v="); ok {
			return "Redis " + v
		}
	}
	return "Redis of unknown version"
}

// noise is how busy other processes kept the machine during the measurements.
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
	for _, p := range l.callers {
		pids = append(pids, p.pid())
	}
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
