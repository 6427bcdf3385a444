package rules

// Copies holds one copy of equal parts of rules while they are read.
type Copies struct {
	// metadata and replaces are keyed by their canonical texts.
	metadata map[string]map[string]any
	replaces map[string][][]string
}

// NewCopies returns an empty Copies.
func NewCopies() *Copies {
	return &Copies{metadata: make(map[string]map[string]any), replaces: make(map[string][][]string)}
}

// Share makes a rule use the metadata and the replaces of another if they are equal.
func (c *Copies) Share(r *Rule) {
	var f fingerprinter
	if r.Metadata != nil {
		f.metadata(r.Metadata)
		r.Metadata = oneOf(c.metadata, f.buf, r.Metadata)
	}
	if r.Replaces != nil {
		f.buf = f.buf[:0]
		f.replaces(r.Replaces)
		r.Replaces = oneOf(c.replaces, f.buf, r.Replaces)
	}
}

// oneOf returns the first value given with a text.
func oneOf[T any](known map[string]T, text []byte, value T) T {
	if first, ok := known[string(text)]; ok {
		return first
	}
	known[string(text)] = value
	return value
}
