//go:build unix

package redistest

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy stands between clients and a server and makes the network's faults:
// by itself it forwards everything at once. Its methods may be called
// concurrently. What it looks for in a request is found in one that its client
// writes at once, which a small command is.
type Proxy struct {
	server string
	port   int
	pumps  sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil while connections are refused
	links    map[*link]struct{}
	faults   faults
	healed   chan struct{} // closed when faults end
	held     int
}

// faults are what a Proxy does beside forwarding. The zero faults are none.
type faults struct {
	delay time.Duration // of each reply
	hold  []byte        // replies to requests that hold this; nil for none
	cut   *cut
	drop  bool
}

// cut is a connection that is to be cut, by a reset or else by its end.
type cut struct {
	text  []byte
	reset bool
	done  chan struct{}
}

// link is a client's connection and the one to the server.
type link struct {
	proxy    *Proxy
	down, up net.Conn
	closed   chan struct{}
	once     sync.Once

	mu       sync.Mutex
	hold     bool
	cut      *cut
	healedBy chan struct{} // what ends the hold
}

// StartProxy starts a proxy to the server at addr, host:port. It ends with the
// test.
func StartProxy(t testing.TB, addr string) *Proxy {
	t.Helper()
	port, err := reservePort()
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	p := &Proxy{server: addr, port: port, links: make(map[*link]struct{}), healed: make(chan struct{})}
	t.Cleanup(func() {
		p.Refuse()
		p.pumps.Wait()
		releasePort(port)
	})
	if err := p.listen(); err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return p
}

// Addr returns where the proxy listens, host:port, always the same.
func (p *Proxy) Addr() string { return loopback(p.port) }

// Delay delivers each reply only after d.
func (p *Proxy) Delay(d time.Duration) { p.set(func(f *faults) { f.delay = d }) }

// Hold forwards requests, and keeps back the replies to those that hold text
// until Heal. The empty text is in all.
func (p *Proxy) Hold(text string) { p.set(func(f *faults) { f.hold = []byte(text) }) }

// Held returns how many connections wait for a reply that is there and held.
func (p *Proxy) Held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

// CutAfter forwards the next request that holds text and cuts its connection
// when the server has replied, without the reply. The channel is closed then.
func (p *Proxy) CutAfter(text string) <-chan struct{} { return p.cutAfter(text, false) }

// ResetAfter is CutAfter whose client's connection is reset, as by a machine
// that knows nothing of it.
func (p *Proxy) ResetAfter(text string) <-chan struct{} { return p.cutAfter(text, true) }

func (p *Proxy) cutAfter(text string, reset bool) <-chan struct{} {
	c := &cut{[]byte(text), reset, make(chan struct{})}
	p.set(func(f *faults) { f.cut = c })
	return c.done
}

// Drop forwards nothing in either direction, as if all packets were lost. New
// connections are accepted, as the kernel does. What clients sent meanwhile is
// forwarded after Heal, although they may be gone, as the kernel does too.
func (p *Proxy) Drop() { p.set(func(f *faults) { f.drop = true }) }

// Refuse cuts all connections and refuses new ones.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	for l := range p.links {
		l.close()
	}
}

// Heal ends all faults and delivers what was held.
func (p *Proxy) Heal(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	p.faults = faults{}
	close(p.healed)
	p.healed = make(chan struct{})
	refuses := p.listener == nil
	p.mu.Unlock()
	if !refuses {
		return
	}
	if err := p.listen(); err != nil {
		t.Fatalf("redistest: %v", err)
	}
}

// Connections returns how many clients are connected.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

func (p *Proxy) set(change func(*faults)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.faults)
}

// now returns the faults in force, and what tells of their end.
func (p *Proxy) now() (faults, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults, p.healed
}

// listen waits for a stranger that has the port for a moment.
func (p *Proxy) listen() error {
	var err error
	for deadline := time.Now().Add(waitDeadline); time.Now().Before(deadline); time.Sleep(pollEvery) {
		var l net.Listener
		if l, err = net.Listen("tcp", p.Addr()); err == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.listener = l
			p.pumps.Go(func() { p.accept(l) })
			return nil
		}
	}
	return err
}

func (p *Proxy) accept(listener net.Listener) {
	for {
		down, err := listener.Accept()
		if err != nil {
			return
		}
		up, err := net.Dial("tcp", p.server)
		if err != nil {
			down.Close() // the server is away
			continue
		}
		l := &link{proxy: p, down: down, up: up, closed: make(chan struct{})}
		p.mu.Lock()
		if p.listener != listener {
			l.close()
		}
		p.links[l] = struct{}{}
		p.mu.Unlock()
		p.pumps.Go(func() {
			var both sync.WaitGroup
			both.Go(func() { l.pump(l.up, l.down, l.request) })
			both.Go(func() { l.pump(l.down, l.up, l.reply) })
			both.Wait()
			p.mu.Lock()
			delete(p.links, l)
			p.mu.Unlock()
		})
	}
}

// pump forwards until the link is closed; before each piece it asks whether to.
func (l *link) pump(to, from net.Conn, forward func([]byte) bool) {
	defer l.close()
	buffer := make([]byte, 1<<17)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if !l.whileDropped() || !forward(buffer[:n]) {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// whileDropped waits until packets are not lost; false if the link was closed.
func (l *link) whileDropped() bool {
	for {
		f, healed := l.proxy.now()
		if !f.drop {
			return true
		}
		select {
		case <-healed:
		case <-l.closed:
			return false
		}
	}
}

// request looks at what a client sends, before it is forwarded.
func (l *link) request(text []byte) bool {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := &p.faults; f.cut != nil && bytes.Contains(text, f.cut.text) {
		l.cut, f.cut = f.cut, nil
	}
	l.hold = p.faults.hold != nil && bytes.Contains(text, p.faults.hold)
	l.healedBy = p.healed
	return true
}

// reply does to a reply what is to be done.
func (l *link) reply([]byte) bool {
	l.mu.Lock()
	hold, cut, healed := l.hold, l.cut, l.healedBy
	l.mu.Unlock()
	if cut != nil {
		if cut.reset {
			_ = l.down.(*net.TCPConn).SetLinger(0)
		}
		l.close()
		close(cut.done)
		return false
	}
	if hold {
		return l.keep(healed)
	}
	f, healed := l.proxy.now()
	if f.delay == 0 {
		return true
	}
	select {
	case <-time.After(f.delay):
	case <-healed:
	case <-l.closed:
		return false
	}
	return true
}

// keep holds a reply; false if the link was closed meanwhile.
func (l *link) keep(healed <-chan struct{}) bool {
	l.proxy.count(1)
	defer l.proxy.count(-1)
	select {
	case <-healed:
		return true
	case <-l.closed:
		return false
	}
}

func (p *Proxy) count(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held += n
}

func (l *link) close() {
	l.once.Do(func() {
		close(l.closed)
		l.down.Close()
		l.up.Close()
	})
}

// Forward forwards every connection that listener accepts to the server at addr,
// host:port: as a load balancer does, or a proxy that ends TLS. The end of the test
// closes listener and the connections.
func Forward(t testing.TB, listener net.Listener, addr string) {
	var connections sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		listener.Close()
		connections.Wait()
	})
	connections.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Go(func() { forward(ctx, from, addr) })
		}
	})
}

// forward joins a connection with one to addr until either side or ctx ends.
func forward(ctx context.Context, from net.Conn, addr string) {
	defer from.Close()
	var d net.Dialer
	to, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return
	}
	defer to.Close()
	defer context.AfterFunc(ctx, func() { from.Close() })()
	back := make(chan struct{})
	go func() {
		defer close(back)
		_, _ = io.Copy(from, to)
		from.Close()
	}()
	_, _ = io.Copy(to, from)
	to.Close()
	<-back
}
