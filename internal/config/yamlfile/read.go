package yamlfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// MaxFileSize bounds a file, in bytes.
	MaxFileSize = 64 << 20
	// MaxName bounds the names of domains and of keys, in bytes.
	MaxName = 255
)

// ReadFile returns the text of a file of at most MaxFileSize bytes.
func ReadFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadAll(f, name)
}

// ReadAll reads a text of at most MaxFileSize, which errors call by the name.
func ReadAll(from io.Reader, name string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, MaxFileSize+1))
	if err == nil && len(data) > MaxFileSize {
		err = fmt.Errorf("read %s: more than %d bytes", name, MaxFileSize)
	}
	return data, err
}

// Utf8 returns the text of a file as UTF-8, without a byte order mark. An Error
// does not name the file.
func (w *Reader) Utf8(data []byte) ([]byte, *Error) {
	if text, ok := fromUTF16(data); ok && w.Lenient {
		w.WarnAt(Position{1, 1, nil}, "found UTF-16; it is read as it is")
		data = text
	}
	if err := CheckText(data); err != nil {
		return nil, err
	}
	return bytes.TrimPrefix(data, []byte("\ufeff")), nil
}

// fromUTF16 turns UTF-16 that begins with a byte order mark into UTF-8. It returns
// false if data is none.
func fromUTF16(data []byte) ([]byte, bool) {
	var order binary.ByteOrder
	switch {
	case bytes.HasPrefix(data, []byte{0xff, 0xfe}):
		order = binary.LittleEndian
	case bytes.HasPrefix(data, []byte{0xfe, 0xff}):
		order = binary.BigEndian
	default:
		return nil, false
	}
	var text []byte
	for data = data[2:]; len(data) >= 2; {
		r := rune(order.Uint16(data))
		data = data[2:]
		if utf16.IsSurrogate(r) {
			if len(data) < 2 {
				return nil, false
			}
			if r = utf16.DecodeRune(r, rune(order.Uint16(data))); r == utf8.RuneError {
				return nil, false
			}
			data = data[2:]
		}
		text = utf8.AppendRune(text, r)
	}
	return text, len(data) == 0
}

// CheckText finds the first character that the YAML parser would refuse without
// saying where.
func CheckText(data []byte) *Error {
	if bytes.HasPrefix(data, []byte{0xff, 0xfe}) || bytes.HasPrefix(data, []byte{0xfe, 0xff}) {
		return &Error{Line: 1, Column: 1, Found: "UTF-16", Allowed: "UTF-8"}
	}
	line, start := 1, 0
	for i := 0; i < len(data); {
		if c := data[i]; c >= ' ' && c < 0x7f || c == '\t' || c == '\r' {
			i++
			continue
		} else if c == '\n' {
			i++
			line, start = line+1, i
			continue
		}
		r, size := utf8.DecodeRune(data[i:])
		column := utf8.RuneCount(data[start:i]) + 1
		switch {
		case r == utf8.RuneError && size == 1:
			return &Error{Line: line, Column: column, Found: fmt.Sprintf("the byte 0x%02x, which is not UTF-8", data[i]), Allowed: "UTF-8"}
		case r < ' ' || r >= 0x7f && r < 0xa0 && r != 0x85 || r == 0xfffe || r == 0xffff || r == 0xfeff && i > 0:
			return &Error{Line: line, Column: column, Found: fmt.Sprintf("the character U+%04X", r), Allowed: "text; other characters stand as \\x or \\u escapes in double quotes"}
		}
		i += size
	}
	return nil
}
