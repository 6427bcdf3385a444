package access

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
)

// Digest is the SHA-256 of a token. The token itself is kept nowhere.
type Digest [sha256.Size]byte

// start returns the first 8 bytes, which no one can choose.
func (d *Digest) start() uint64 { return binary.LittleEndian.Uint64(d[:]) }

// MaxToken bounds the bytes of a token.
const MaxToken = 512

// Credentials are what a caller shows.
type Credentials struct {
	// Digest is that of the token, if HasToken.
	Digest   Digest
	HasToken bool
	// Unreadable is set if there is an authorization that is not a bearer token.
	Unreadable bool
	// Names are the names in the client's verified certificate, as the function Names
	// returns them.
	Names []string
	// HasCertificate is whether there is one; it may have no names.
	HasCertificate bool
}

// ReadAuthorization reads the values of the header authorization.
func (c *Credentials) ReadAuthorization(values []string) {
	switch len(values) {
	case 0:
		return
	case 1:
	default:
		c.Unreadable = true
		return
	}
	const scheme = "bearer "
	value := values[0]
	if len(value) <= len(scheme) || len(value) > len(scheme)+MaxToken || !strings.EqualFold(value[:len(scheme)], scheme) {
		c.Unreadable = true
		return
	}
	var room [MaxToken]byte
	c.Digest, c.HasToken = sha256.Sum256(append(room[:0], strings.TrimLeft(value[len(scheme):], " ")...)), true
}
