package record

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"sync"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
)

// scratch is the memory in which a line is made, reused for the next.
type scratch struct {
	line        decisionlog.Line
	descriptors []descriptor
	limits      []decisionlog.Limit
	assigned    []decisionlog.Numbers
	// numbersOf has, for each of assigned, its index among limits.
	numbersOf []int
	entries   []bucket.Entry
	text      []byte

	mac    hash.Hash // nil: values are kept
	hashes []byte
	sum    []byte
}

// descriptor is a descriptor of the line, until settleTexts.
type descriptor struct {
	decisionlog.Descriptor
	limits span
}

// span is a part of a list that still grows.
type span struct{ from, to int }

const (
	// MaxText bounds the bytes of entries in a line; what is beyond is cut.
	MaxText = 32 << 10
	// keptText bounds the memory of a scratch that is kept.
	keptText = 64 << 10
	// keptItems bounds the lists of one.
	keptItems = 256
	// hashedSize is the size of "h:" and 16 hexadecimal digits.
	hashedSize = len("h:") + 16
)

func newScratch(key []byte) *scratch {
	s := new(scratch)
	if len(key) > 0 {
		s.mac = hmac.New(sha256.New, key)
	}
	return s
}

// descriptor adds an empty descriptor.
func (s *scratch) descriptor() *descriptor {
	s.descriptors = append(s.descriptors, descriptor{})
	return &s.descriptors[len(s.descriptors)-1]
}

// numbers notes the numbers of a limit that no file has: those of own, or assigned ones if it
// is nil.
func (s *scratch) numbers(limit int, l *bucket.Limit, own *decide.Override) {
	n := decisionlog.Numbers{
		Algorithm: l.Algorithm.String(), Requests: l.Requests, Burst: l.Burst, Period: l.Period, BlockFor: l.BlockFor, Assigned: own == nil, Apart: own != nil && own.Apart,
	}
	if c := l.Calendar; c.Unit != bucket.NoCalendar {
		n.Calendar, n.Starts, n.TimeZone = c.Unit.String(), c.Starts.In(c.Unit), c.Zone.String()
	}
	s.assigned = append(s.assigned, n)
	s.numbersOf = append(s.numbersOf, limit)
}

// settleTexts gives the line its descriptors, once all lists have grown, with their
// texts as they may be written.
func (s *scratch) settleTexts() {
	for i := range s.assigned {
		s.limits[s.numbersOf[i]].Numbers = &s.assigned[i]
	}
	size := len(s.line.Domain)
	for i := range s.descriptors {
		for _, e := range s.descriptors[i].Entries {
			size += len(e.Key) + len(e.Value)
		}
	}
	if s.mac != nil {
		s.hash()
	}
	if size > MaxText {
		s.cut()
	}
	for i := range s.descriptors {
		d := &s.descriptors[i]
		d.Limits = s.limits[d.limits.from:d.limits.to]
		s.line.Descriptors = append(s.line.Descriptors, d.Descriptor)
	}
}

// hash replaces all values, and the ID.
func (s *scratch) hash() {
	if s.line.ID != "" {
		s.line.ID = string(s.hashOf(nil, "id", s.line.ID))
	}
	s.copyEntries()
	for i := range s.entries {
		s.hashes = s.hashOf(s.hashes, s.entries[i].Key, s.entries[i].Value)
	}
	all := string(s.hashes)
	for i := range s.entries {
		s.entries[i].Value = all[i*hashedSize : (i+1)*hashedSize]
	}
}

// hashOf appends the hash of a value.
func (s *scratch) hashOf(dst []byte, key, value string) []byte {
	s.mac.Reset()
	s.text = append(append(append(s.text[:0], key...), 0), value...)
	s.mac.Write(s.text)
	s.sum = s.mac.Sum(s.sum[:0])
	return hex.AppendEncode(append(dst, "h:"...), s.sum[:8])
}

// copyEntries gives the descriptors entries that may be changed.
func (s *scratch) copyEntries() {
	n := 0
	for i := range s.descriptors {
		n += len(s.descriptors[i].Entries)
	}
	if cap(s.entries) < n {
		s.entries = make([]bucket.Entry, 0, n)
	}
	for i := range s.descriptors {
		d, start := &s.descriptors[i], len(s.entries)
		s.entries = append(s.entries, d.Entries...)
		d.Entries = s.entries[start:len(s.entries):len(s.entries)]
	}
}

// cut cuts texts so that the line has at most MaxText bytes of them, the first ones
// whole.
func (s *scratch) cut() {
	if s.mac == nil {
		s.copyEntries()
	}
	room := MaxText
	fit := func(text string) string {
		if len(text) > room {
			s.line.Lossy = true
			text = text[:room]
		}
		room -= len(text)
		return text
	}
	s.line.Domain = fit(s.line.Domain)
	for i := range s.entries {
		s.entries[i].Key, s.entries[i].Value = fit(s.entries[i].Key), fit(s.entries[i].Value)
	}
}

// release empties the scratch for the next line, and drops it if it has grown large.
func (s *scratch) release(pool *sync.Pool) {
	if cap(s.text) > keptText || cap(s.hashes) > keptText || cap(s.descriptors) > keptItems || cap(s.limits) > keptItems || cap(s.entries) > keptItems {
		return
	}
	clear(s.line.Descriptors)
	clear(s.descriptors)
	clear(s.limits)
	clear(s.entries)
	s.line = decisionlog.Line{Descriptors: s.line.Descriptors[:0]}
	s.descriptors, s.limits, s.entries = s.descriptors[:0], s.limits[:0], s.entries[:0]
	s.assigned, s.numbersOf, s.hashes = s.assigned[:0], s.numbersOf[:0], s.hashes[:0]
	pool.Put(s)
}
