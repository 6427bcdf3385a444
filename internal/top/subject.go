package top

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// MaxSubject is how many bytes of a subject are kept.
const MaxSubject = 256

// A subject is kept as its entries, each key and value preceded by its length (an
// unsigned varint), after a byte that says whether that is all. Of a longer subject the
// beginning is kept, with a hash of the whole, so that its text still differs from
// others.
const (
	isWhole = 'w'
	isCut   = 'c'

	sizeOfHash = 8
)

// AppendSubject appends the text of the subject with these entries, at most MaxSubject
// bytes. Subjects of equal text are the same, unless they were cut: then someone may have
// chosen them to have the same beginning and the same hash.
func AppendSubject(dst []byte, entries []bucket.Entry) []byte {
	start := len(dst)
	dst = append(dst, isWhole)
	for i := range entries {
		for _, part := range [...]string{entries[i].Key, entries[i].Value} {
			if len(dst)-start+binary.MaxVarintLen32+len(part) > MaxSubject {
				return appendCut(dst[:start], entries)
			}
			dst = binary.AppendUvarint(dst, uint64(len(part)))
			dst = append(dst, part...)
		}
	}
	return dst
}

// appendCut is AppendSubject for a subject that is too long.
func appendCut(dst []byte, entries []bucket.Entry) []byte {
	const maxText = MaxSubject - sizeOfHash
	start := len(dst)
	dst = append(dst, isCut)
	var hash xxhash.Digest
	hash.Reset()
	for i := range entries {
		for _, part := range [...]string{entries[i].Key, entries[i].Value} {
			var room [binary.MaxVarintLen64]byte
			length := binary.AppendUvarint(room[:0], uint64(len(part)))
			_, _ = hash.Write(length) // never fails
			_, _ = hash.WriteString(part)
			for _, text := range [...]string{string(length), part} {
				dst = append(dst, text[:min(len(text), maxText-(len(dst)-start))]...)
			}
		}
	}
	return binary.LittleEndian.AppendUint64(dst, hash.Sum64())
}

// Entries returns the entries of a subject from its text. cut says that it had more: the
// last value or key may be only its beginning. For an invalid text it returns what can be
// read.
func Entries(text string) (entries []bucket.Entry, cut bool) {
	if text == "" {
		return nil, false
	}
	cut = text[0] == isCut
	text = text[1:]
	if cut {
		text = text[:max(0, len(text)-sizeOfHash)]
	}
	for text != "" {
		var e bucket.Entry
		e.Key, text = nextPart(text)
		e.Value, text = nextPart(text)
		entries = append(entries, e)
	}
	return entries, cut
}

// nextPart returns the key or value at the beginning of a text, as far as it goes, and
// what follows it.
func nextPart(text string) (part, rest string) {
	var room [binary.MaxVarintLen64]byte
	length, n := binary.Uvarint(room[:copy(room[:], text)])
	if n <= 0 {
		return "", ""
	}
	text = text[n:]
	end := int(min(length, uint64(len(text))))
	return text[:end], text[end:]
}
