//go:build unix

package redistest

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy forwards between clients and a server, and makes the faults of a network.
// Its methods may be called concurrently. It finds a text in a request only if the
// client writes the request at once, as clients do with small commands.
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

// faults are the faults that a Proxy makes. The zero faults are none.
type faults struct {
	hold  []byte // replies to requests with this text are held; nil for none
	cut   *cut
	drop  bool
	delay time.Duration // of each reply
}

// cut is the order to cut a connection, by a reset or by an end of file.
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
	port, release, err := reservePort()
	check(t, err)
	t.Cleanup(release)
	p := newProxy(t, addr)
	p.port = port
	check(t, p.listen())
	return p
}

func newProxy(t testing.TB, addr string) *Proxy {
	p := &Proxy{server: addr, links: make(map[*link]struct{}), healed: make(chan struct{})}
	t.Cleanup(func() {
		p.Refuse()
		p.pumps.Wait()
	})
	return p
}

// Addr returns where the proxy listens, host:port, always the same.
func (p *Proxy) Addr() string { return loopback(p.port) }

// Hold forwards requests, and holds the replies to those with text until Heal. The
// empty text is in all requests.
func (p *Proxy) Hold(text string) { p.set(func(f *faults) { f.hold = []byte(text) }) }

// Delay delivers each reply only after d.
func (p *Proxy) Delay(d time.Duration) { p.set(func(f *faults) { f.delay = d }) }

// Held returns how many replies have come and are held.
func (p *Proxy) Held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

// CutAfter forwards the next request with text, and cuts its connection when the
// server has replied, without the reply. Then it closes the channel.
func (p *Proxy) CutAfter(text string) <-chan struct{} { return p.cutAfter(text, false) }

// ResetAfter is CutAfter, but resets the client's connection, as a machine does that
// does not know it.
func (p *Proxy) ResetAfter(text string) <-chan struct{} { return p.cutAfter(text, true) }

func (p *Proxy) cutAfter(text string, reset bool) <-chan struct{} {
	c := &cut{text: []byte(text), reset: reset, done: make(chan struct{})}
	p.set(func(f *faults) { f.cut = c })
	return c.done
}

// Drop forwards nothing in either direction, as if all packets were lost. As a
// kernel would, the proxy accepts new connections, and forwards after Heal what
// clients have sent meanwhile, even if they are gone.
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
	check(t, p.listen())
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

// now returns the faults in force, and a channel that is closed at their end.
func (p *Proxy) now() (faults, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults, p.healed
}

// listen tries again while another process has the port for a moment.
func (p *Proxy) listen() error {
	var err error
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); time.Sleep(pollEvery) {
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

// pump copies from one connection to the other until the link is closed. Before
// each piece it calls forward, and ends if that returns false.
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

// whileDropped waits while packets are dropped. It reports false if the link was
// closed meanwhile.
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

// reply makes the faults of a reply before it is forwarded. It reports false if the
// link was closed.
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
	if !hold {
		faults, healed := l.proxy.now()
		if faults.delay == 0 {
			return true
		}
		select {
		case <-time.After(faults.delay):
		case <-healed:
		case <-l.closed:
			return false
		}
		return true
	}
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
	p := newProxy(t, addr)
	p.listener = listener
	p.pumps.Go(func() { p.accept(listener) })
}
