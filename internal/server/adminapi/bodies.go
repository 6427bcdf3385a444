package adminapi

import (
	"context"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// bodiesEach bounds the bodies of one member that are read at a time. More wait.
	bodiesEach = 8
	// bodyWithin is how long a body may take to come, and how long it may wait to be
	// read.
	bodyWithin = 10 * time.Second
)

// bodyPlaces bound the bodies that are read at a time: a caller who sends slowly holds up
// only itself.
type bodyPlaces struct {
	mu sync.Mutex
	by map[string]*memberBodies
}

// memberBodies are the bodies of a member.
type memberBodies struct {
	places chan struct{}
	users  int // of this, who read or wait
}

// enter waits for a place until leave is called. Its error is a status.
func (p *bodyPlaces) enter(ctx context.Context, member string) (leave func(), _ error) {
	b := p.use(member)
	late := time.NewTimer(bodyWithin)
	defer late.Stop()
	err := status.Errorf(codes.ResourceExhausted, "%q sends %d requests, and none of them has come whole within %v; ask again", member, bodiesEach, bodyWithin)
	select {
	case b.places <- struct{}{}:
		return func() {
			<-b.places
			p.forget(member, b)
		}, nil
	case <-ctx.Done():
		err = status.FromContextError(ctx.Err()).Err()
	case <-late.C:
	}
	p.forget(member, b)
	return nil, err
}

func (p *bodyPlaces) use(member string) *memberBodies {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.by == nil {
		p.by = make(map[string]*memberBodies)
	}
	b := p.by[member]
	if b == nil {
		b = &memberBodies{places: make(chan struct{}, bodiesEach)}
		p.by[member] = b
	}
	b.users++
	return b
}

func (p *bodyPlaces) forget(member string, b *memberBodies) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.users--; b.users == 0 {
		delete(p.by, member)
	}
}

// readBody reads a request, whose body, if it has one, comes beside only a few others of
// its caller, and then identifies the caller again. Its error is a status.
func (a *API) readBody(r *http.Request, method string, read func() error) error {
	v := visitOf(r.Context())
	// A deadline that stays set would end the request while it waits or is answered.
	defer v.deadlines.read(time.Time{})
	if r.ContentLength == 0 {
		return read()
	}
	leave, err := a.bodies.enter(r.Context(), v.member.Name)
	if err != nil {
		return err
	}
	defer leave()
	v.deadlines.read(time.Now().Add(bodyWithin))
	if err := read(); err != nil {
		return err
	}
	return mayStill(r.Context(), method)
}
