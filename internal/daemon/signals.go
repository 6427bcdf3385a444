package daemon

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// signals are the channels of the signals that the daemon acts on. Each kind has its own
// channel, so that a flood of one never hides the other.
type signals struct {
	stop, reload chan os.Signal
}

func notifySignals() signals {
	s := signals{stop: make(chan os.Signal, 2), reload: make(chan os.Signal, 1)}
	signal.Notify(s.stop, syscall.SIGTERM, os.Interrupt)
	signal.Notify(s.reload, syscall.SIGHUP)
	return s
}

func (s signals) end() {
	signal.Stop(s.stop)
	signal.Stop(s.reload)
}

// stopAtSignal sends the drain delay to stop at SIGTERM, and 0 at Ctrl-C, which
// also cuts a delay short.
func (s signals) stopAtSignal(ctx context.Context, drain time.Duration, stop chan<- time.Duration) {
	for {
		delay := drain
		select {
		case received := <-s.stop:
			if received == os.Interrupt {
				delay = 0
			}
		case <-ctx.Done():
			return
		}
		select {
		case stop <- delay:
		case <-ctx.Done():
			return
		}
	}
}

// reloadAtSignal reloads the files at SIGHUP, and reopens that of the log of decisions.
func (s signals) reloadAtSignal(ctx context.Context, loaded []reloader, decisions *decisions, log *slog.Logger) {
	for {
		select {
		case <-s.reload:
			log.Info("SIGHUP: loading the files")
			decisions.reopen()
			for _, r := range loaded {
				_ = r.Reload() // which logs
			}
		case <-ctx.Done():
			return
		}
	}
}
