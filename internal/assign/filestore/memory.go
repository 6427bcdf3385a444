package filestore

import (
	"sync"

	"github.com/ratelimitd/ratelimitd/internal/assign"
)

// memory keeps records until the process ends, and leaves assignments to the table.
type memory struct {
	max int

	mu   sync.Mutex
	kept []assign.Record
	last uint64 // ID of the newest
}

func (m *memory) load(func(*assign.Assignment) error) (uint64, error) { return 0, nil }

func (m *memory) keep(c *commit) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept = append(m.kept, c.records...)
	m.last += uint64(len(c.records))
	// Up to twice as many are held, so that they are seldom moved.
	if len(m.kept) > 2*m.max {
		m.kept = append([]assign.Record(nil), m.kept[len(m.kept)-m.max:]...)
	}
	return nil
}

func (m *memory) records(before uint64, each func(uint64, assign.Record) bool) error {
	m.mu.Lock()
	kept, last := m.kept, m.last
	m.mu.Unlock()
	kept = kept[max(0, len(kept)-m.max):]
	for i := len(kept) - 1; i >= 0; i-- {
		if id := last - uint64(len(kept)-1-i); id < before && !each(id, kept[i]) {
			return nil
		}
	}
	return nil
}

func (m *memory) close() error { return nil }
