package access

import (
	"container/list"
	"net/netip"
	"sync"
	"time"
)

const (
	// failuresInARow is how many attempts in a row may fail from an address, and
	// failureEvery is how often it gets another one after that.
	failuresInARow = 10
	failureEvery   = 6 * time.Second
	// failuresInAll bounds the failures of all addresses in failuresSpan. While more
	// fail, an address has one attempt in failureEvery, not failuresInARow.
	failuresInAll = 300
	failuresSpan  = time.Minute
	// rememberedAddresses bounds the addresses that are known to have failed: some 1 MiB.
	// The one with the oldest last failure makes room.
	rememberedAddresses = 4096
)

// failures bounds how often credentials may be guessed. An address that has not
// failed lately may always try.
type failures struct {
	mu     sync.Mutex
	byAge  *list.List // of *failed, the oldest first
	failed map[netip.Prefix]*list.Element
	// inAll are the failures since spanBegan.
	inAll     int
	spanBegan time.Time
}

// failed is an address, or a network of one caller, that has failed.
type failed struct {
	network netip.Prefix
	// level falls by 1 every failureEvery; at is the time of its value.
	level float64
	at    time.Time
}

func newFailures() *failures {
	return &failures{byAge: list.New(), failed: make(map[netip.Prefix]*list.Element)}
}

// networkOf returns what counts as one address: a /64 of IPv6, which is one
// customer's.
func networkOf(address netip.Addr) netip.Prefix {
	address = address.Unmap().WithZone("")
	bits := 32
	if !address.Is4() {
		bits = 64
	}
	network, _ := address.Prefix(bits) // the zero Prefix of no address
	return network
}

func (f *failed) levelAt(now time.Time) float64 {
	return max(0, f.level-float64(max(0, now.Sub(f.at)))/float64(failureEvery))
}

// mayTry reports whether an address may try.
func (f *failures) mayTry(address netip.Addr, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.failed[networkOf(address)]
	if e == nil {
		return true
	}
	maxLevel := float64(failuresInARow)
	if f.inAll >= failuresInAll && now.Sub(f.spanBegan) < failuresSpan {
		maxLevel = 1
	}
	return e.Value.(*failed).levelAt(now) <= maxLevel-1
}

// add counts a failure.
func (f *failures) add(address netip.Addr, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if since := now.Sub(f.spanBegan); since >= failuresSpan || since < 0 {
		f.spanBegan, f.inAll = now, 0
	}
	f.inAll++
	network := networkOf(address)
	e := f.failed[network]
	if e == nil {
		if f.byAge.Len() == rememberedAddresses {
			oldest := f.byAge.Front()
			delete(f.failed, oldest.Value.(*failed).network)
			f.byAge.Remove(oldest)
		}
		f.failed[network] = f.byAge.PushBack(&failed{network: network, level: 1, at: now})
		return
	}
	one := e.Value.(*failed)
	one.level, one.at = one.levelAt(now)+1, now
	f.byAge.MoveToBack(e)
}
