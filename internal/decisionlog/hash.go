package decisionlog

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// hashMark begins a value that is written as its hash.
const hashMark = "h:"

// HashOf returns what a log with hashed values has in place of an entry's value.
func HashOf(secret []byte, key, value string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(key + "\x00" + value))
	return hashMark + hex.EncodeToString(mac.Sum(nil)[:8])
}

// IsHash reports whether a value looks like one of HashOf.
func IsHash(value string) bool {
	if len(value) != len(hashMark)+16 || value[:len(hashMark)] != hashMark {
		return false
	}
	for _, c := range []byte(value[len(hashMark):]) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
