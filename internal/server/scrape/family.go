package scrape

import "github.com/ratelimitd/ratelimitd/internal/server/pages"

// Family is a counter that may have very many series, so that a page has them one
// after the other.
type Family struct {
	Name, Help string
	// Labels are the names of its labels, sorted.
	Labels []string
	// Optional is the one of them that series without it do not show. An empty label
	// is none to Prometheus; leaving it out makes the page shorter.
	Optional string
	// Each sets the labels of each series and writes it, until Write reports false.
	// No two have the same labels, which are valid UTF-8.
	Each func(s *Series)
}

// Series writes the series of a family. Labels stay until they are set again.
type Series struct {
	out    *pages.Writer
	format encoding
	family *Family
	values [][]byte
	begun  bool
}

// encoding writes a family in a format of Prometheus.
type encoding interface {
	// begin is called before the first series of a family, and end after the last.
	begin(out *pages.Writer, f *Family)
	series(out *pages.Writer, f *Family, values [][]byte, n uint64)
	end(out *pages.Writer, f *Family)
}

// writeFamily writes a family. One without a series leaves no trace.
func writeFamily(out *pages.Writer, format encoding, f *Family) {
	s := &Series{out: out, format: format, family: f, values: make([][]byte, len(f.Labels))}
	f.Each(s)
	if s.begun {
		format.end(out, f)
	}
}

// Set sets a label, by its place among the names.
func (s *Series) Set(i int, value string) { s.values[i] = append(s.values[i][:0], value...) }

// SetBytes is Set with bytes, which are copied.
func (s *Series) SetBytes(i int, value []byte) { s.values[i] = append(s.values[i][:0], value...) }

// isShown reports whether a series has label i.
func (f *Family) isShown(i int, values [][]byte) bool {
	return len(values[i]) > 0 || f.Labels[i] != f.Optional
}

// Write writes the series of the labels as they are set. It reports false once
// nothing more can be written.
func (s *Series) Write(n uint64) bool {
	if !s.begun {
		s.begun = true
		s.format.begin(s.out, s.family)
	}
	s.format.series(s.out, s.family, s.values, n)
	return s.out.FlushIfLong()
}
