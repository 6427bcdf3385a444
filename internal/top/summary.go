package top

import (
	"cmp"
	"slices"
)

// Summary is what is known of a stream.
type Summary struct {
	// Counts are sorted, largest first.
	Counts []Count `json:"counts"`
	// Floor is the most that anyone who is not in Counts had.
	Floor uint64 `json:"floor"`
	// Total is the sum of all, known and unknown.
	Total uint64 `json:"total"`
}

// Count is what is known of a subject: it had at most Count, and at least Count less
// Error.
type Count struct {
	// Subject is its text; Entries reads it.
	Subject string
	Count   uint64
	Error   uint64
}

const (
	sizeOfCount = 32
	sizeOfWord  = 16 // a short text takes whole ones
)

func (c *Count) bytes() int64 { return int64(sizeOfCount + roundUp(len(c.Subject), sizeOfWord)) }

// sortCounts puts the largest first; of equal ones the more certain.
func sortCounts(counts []Count) {
	slices.SortFunc(counts, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Error, b.Error), cmp.Compare(a.Subject, b.Subject))
	})
}

// Plus returns the summary of both streams together. A subject that is only in one had at
// most the other's floor there.
func (s Summary) Plus(other Summary) Summary {
	if s.Total == 0 {
		return other
	}
	if other.Total == 0 {
		return s
	}
	sum := Summary{Counts: make([]Count, 0, len(s.Counts)+len(other.Counts)), Floor: plus(s.Floor, other.Floor), Total: plus(s.Total, other.Total)}
	rest := make(map[string]*Count, len(other.Counts))
	for i := range other.Counts {
		rest[other.Counts[i].Subject] = &other.Counts[i]
	}
	add := func(c Count, count, slack uint64) {
		sum.Counts = append(sum.Counts, Count{Subject: c.Subject, Count: plus(c.Count, count), Error: plus(c.Error, slack)})
	}
	for _, c := range s.Counts {
		if both := rest[c.Subject]; both != nil {
			add(c, both.Count, both.Error)
			delete(rest, c.Subject)
		} else {
			add(c, other.Floor, other.Floor)
		}
	}
	for _, c := range rest {
		add(*c, s.Floor, s.Floor)
	}
	sortCounts(sum.Counts)
	return sum
}

// First returns the summary without the counts after the first n. The floor rises to the
// largest of those.
func (s Summary) First(n int) Summary {
	if n < len(s.Counts) {
		s.Floor = max(s.Floor, s.Counts[n].Count)
		s.Counts = s.Counts[:n:n]
	}
	return s
}

// Within returns the summary with the largest counts that fit into the given number of
// bytes.
func (s Summary) Within(bytes int64) Summary {
	for i := range s.Counts {
		if bytes -= s.Counts[i].bytes(); bytes < 0 {
			return s.First(i)
		}
	}
	return s
}

func (s *Summary) bytes() (sum int64) {
	for i := range s.Counts {
		sum += s.Counts[i].bytes()
	}
	return sum
}
