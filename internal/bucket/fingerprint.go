package bucket

import (
	"encoding/binary"
	"hash/fnv"
	"io"
)

// Fingerprint is a hash of the numbers that a state is counted with, the same in
// every process. Postpaid, OnStoreFailure and Unenforced are not in it: a
// state does not depend on them.
func (l *Limit) Fingerprint() uint64 { return l.fingerprint }

// CountsAs reports whether both limits keep a subject's state under the same key,
// and count it with the same numbers.
func (l *Limit) CountsAs(other *Limit) bool {
	return l.fingerprint == other.fingerprint && l.suffix == other.suffix
}

// Numbers are what the steps compute with, besides Capacity and Charging, for code that
// computes them elsewhere: for a bucket Quantum, Unit, Rate and MaxDebt, for a window its
// period, for a sliding one also its slot. For a limit that always denies it is the
// period, if periods begin at certain moments.
func (l *Limit) Numbers() [4]int64 {
	a := l.algorithm()
	switch {
	case l.looksAtState():
		return a.numbers(l)
	case a.periodEnd != nil:
		return [4]int64{l.PeriodMicros}
	}
	return [4]int64{}
}

func (l *Limit) hashNumbers() uint64 {
	var b [4 * 8]byte
	for i, n := range [...]int64{l.Requests, l.PeriodMicros, l.Burst, l.SubWindows} {
		binary.LittleEndian.PutUint64(b[8*i:], uint64(n))
	}
	h := fnv.New64a()
	_, _ = h.Write(b[:]) // never fails
	if l.calendar != nil {
		_, _ = io.WriteString(h, l.Calendar.String())
	}
	return h.Sum64()
}
