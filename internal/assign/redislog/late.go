package redislog

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// A daemon that died stays in the register for some seconds, and each change would wait
// for it as long as a change waits at most. So a daemon that a change waited for in vain
// is late: later changes name it at once, without waiting, until it has acknowledged what
// it missed. What matters is that it is named: it may still decide by the earlier state.

// late holds the daemons that are late, and what each of them missed, by tag.
type late struct {
	mu     sync.Mutex
	missed map[string]written // has no more daemons than the register
}

// add notes that a change was waited for in vain.
func (l *late) add(ids []string, wanted written) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		if l.missed[id] != nil {
			continue // it must first get what it missed before
		}
		if l.missed == nil {
			l.missed = make(map[string]written)
		}
		l.missed[id] = wanted
	}
}

// keep drops all daemons except these, and returns the late ones left.
func (l *late) keep(ids []string) map[string]written {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.missed, func(id string, _ written) bool { return !slices.Contains(ids, id) })
	return maps.Clone(l.missed)
}

func (l *late) remove(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.missed, id)
}

// lateOf returns which of the daemons still do not have what they missed.
func (s *Store) lateOf(ctx context.Context, ids []string) map[string]bool {
	still := make(map[string]bool)
	for id, missed := range s.late.keep(ids) {
		left, _, err := s.without(ctx, []string{id}, missed)
		if err == nil && len(left) == 0 {
			s.late.remove(id)
			continue
		}
		still[id] = true
	}
	return still
}
