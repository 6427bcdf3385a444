package access

import "crypto/subtle"

// holders finds those who have credentials by these.
type holders[T any] struct {
	// byToken has the few tokens that begin with the same 8 bytes of their digests.
	byToken map[uint64][]tokenHolder[T]
	// byName has names of certificates as Names and ofAnyKind spell them.
	byName map[string]*T
}

type tokenHolder[T any] struct {
	digest Digest
	holder *T
}

func newHolders[T any]() holders[T] {
	return holders[T]{byToken: make(map[uint64][]tokenHolder[T]), byName: make(map[string]*T)}
}

func (h *holders[T]) addToken(d Digest, holder *T) {
	h.byToken[d.start()] = append(h.byToken[d.start()], tokenHolder[T]{d, holder})
}

// ofToken returns the holder of a token, or nil. It takes the same time whichever bytes
// of the digest differ: only its start, which no one can choose, selects what is
// compared.
func (h *holders[T]) ofToken(d *Digest) *T {
	for _, t := range h.byToken[d.start()] {
		if subtle.ConstantTimeCompare(t.digest[:], d[:]) == 1 {
			return t.holder
		}
	}
	return nil
}

// ofNames returns the holder of a certificate with these names, by the first of them that
// a file has, with its kind or without one. It returns nil if there is none.
func (h *holders[T]) ofNames(names []string) *T {
	for _, name := range names {
		for _, spelling := range [...]string{name, ofAnyKind(name)} {
			if holder := h.byName[spelling]; holder != nil {
				return holder
			}
		}
	}
	return nil
}
