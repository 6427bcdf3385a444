package trace

// Looked returns how many descriptors of a file were looked at for hints so far.
func (r *Reacher) Looked() int { return r.looked }

// MaxLooks is how many a request may look at, beside those of which it needs the keys.
const MaxLooks = maxLooks
