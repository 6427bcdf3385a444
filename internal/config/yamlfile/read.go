package yamlfile

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"unicode/utf8"
)

const (
	// MaxFileSize bounds a file, in bytes.
	MaxFileSize = 64 << 20
	// MaxName bounds the names of domains and of keys, in bytes.
	MaxName = 255
)

// ReadFile returns the text of a file of at most MaxFileSize bytes. It does not open a
// pipe, which would wait for its other end.
func ReadFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadAll(f, name)
}

// ReadAll reads a text of at most MaxFileSize bytes; errors refer to it by name.
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
	if err := CheckText(data); err != nil {
		return nil, err
	}
	return bytes.TrimPrefix(data, []byte("\ufeff")), nil
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
