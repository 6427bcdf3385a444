package adminapi

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// maxWatches bounds the watches at a time, and watchesEach those of one member,
	// so that one caller leaves places for others.
	maxWatches, watchesEach = 64, 16
)

var errManyWatches = status.Errorf(codes.ResourceExhausted, "%d watches are open, and that is all there may be", maxWatches)

// watchPlaces counts the watches that are open.
type watchPlaces struct {
	mu sync.Mutex
	// by has the number of each member who has one, by name. They are at most
	// maxWatches in all.
	by  map[string]int
	all int
}

// enter takes a place for a member until leave is called, or returns why there is
// none: a status.
func (p *watchPlaces) enter(member string) (leave func(), _ error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.by[member] >= watchesEach:
		return nil, status.Errorf(codes.ResourceExhausted, "%q has %d watches open, and that is all that one caller may have", member, watchesEach)
	case p.all >= maxWatches:
		return nil, errManyWatches
	}
	if p.by == nil {
		p.by = make(map[string]int)
	}
	p.by[member]++
	p.all++
	return func() { p.leave(member) }, nil
}

func (p *watchPlaces) leave(member string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.by[member]--; p.by[member] == 0 {
		delete(p.by, member)
	}
}
