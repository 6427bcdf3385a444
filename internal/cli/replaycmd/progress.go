package replaycmd

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/replay"
)

// progress shows the progress of a replay on a terminal.
type progress struct {
	to    io.Writer
	logs  []*replay.Log
	bytes int64 // of all logs, or 0 if unknown
	began time.Time
	shown time.Time
}

const progressInterval = 200 * time.Millisecond

func newProgress(to io.Writer, names []string, logs []*replay.Log) *progress {
	p := &progress{to: to, logs: logs, began: time.Now()}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			p.bytes = 0
			break
		}
		p.bytes += info.Size()
	}
	return p
}

func (p *progress) show(lines uint64) {
	now := time.Now()
	if now.Sub(p.shown) < progressInterval {
		return
	}
	p.shown = now
	share := ""
	if p.bytes > 0 {
		read := int64(0)
		for _, l := range p.logs {
			read += l.BytesRead()
		}
		share = fmt.Sprintf("%3d%%  ", 100*read/p.bytes)
	}
	fmt.Fprintf(p.to, "\r%s%s lines, %s a second\x1b[K", share, replay.Grouped(lines), replay.Grouped(uint64(float64(lines)/now.Sub(p.began).Seconds())))
}

func (p *progress) clear() { fmt.Fprint(p.to, "\r\x1b[K") }
