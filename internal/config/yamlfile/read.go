package yamlfile

import (
	"fmt"
	"io"
	"os"
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
	data, err := io.ReadAll(io.LimitReader(f, MaxFileSize+1))
	if err == nil && len(data) > MaxFileSize {
		err = fmt.Errorf("read %s: more than %d bytes", name, MaxFileSize)
	}
	return data, err
}
