package reload

import "crypto/sha256"

// File returns the function that New needs to read a single file: read returns its text,
// and parse its value, with its size as attributes for the log.
func File[T any](read func(path string) ([]byte, error), parse func(path string, data []byte) (value *T, size []any, err error)) func(path string) (Files[T], error) {
	return func(path string) (Files[T], error) {
		data, err := read(path)
		return Files[T]{
			Digest: sha256.Sum256(data),
			Parse:  func(*T) (*T, []any, error) { return parse(path, data) },
		}, err
	}
}
