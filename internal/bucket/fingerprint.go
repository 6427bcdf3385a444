package bucket

import (
	"encoding/binary"
	"hash/fnv"
)

// Fingerprint is a hash of the numbers that a state is counted with, the same in
// every process. It leaves out what only says who is charged (Postpaid) or who
// answers (OnStoreFailure).
func (l *Limit) Fingerprint() uint64 { return l.fingerprint }

// CountsAs reports whether both limits keep a subject's state under the same key
// and count it with the same numbers.
func (l *Limit) CountsAs(other *Limit) bool {
	return l.fingerprint == other.fingerprint && l.suffix == other.suffix
}

func (l *Limit) hashNumbers() uint64 {
	var b [4 * 8]byte
	for i, n := range [...]int64{l.Requests, l.PeriodMicros, l.Burst, l.SubWindows} {
		binary.LittleEndian.PutUint64(b[8*i:], uint64(n))
	}
	h := fnv.New64a()
	_, _ = h.Write(b[:]) // never fails
	return h.Sum64()
}
