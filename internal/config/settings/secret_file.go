package settings

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// readPassword returns the current password in the file, without the newline that editors
// put at the end. It is read for each new connection, so that a rotated password needs no
// restart.
//
// An empty file is an error and not an empty password: it may be about to be written.
func readPassword(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the password file: %w", err)
	}
	password := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	if password == "" {
		return "", errors.New("read the password file: " + path + " is empty")
	}
	return password, nil
}

// HashKey returns the key for hashing values, or nothing if they are kept. It has at
// least 16 bytes.
func (d Decisions) HashKey() ([]byte, error) {
	if d.Values != HashValues {
		return nil, nil
	}
	key, err := readPassword(d.HashKeyFile)
	if err != nil {
		return nil, fmt.Errorf("decisions.hash_key_file: %w", err)
	}
	if len(key) < minHashKey {
		return nil, fmt.Errorf("decisions.hash_key_file: found %d bytes in %s; allowed: %d and more", len(key), d.HashKeyFile, minHashKey)
	}
	return []byte(key), nil
}

// minHashKey is the smallest number of bytes that cannot be guessed.
const minHashKey = 16

// CurrentPassword returns the password for a connection made now: from the file if there
// is one, else the fixed one, else "".
func (r Redis) CurrentPassword() (string, error) {
	if r.PasswordFile != "" {
		return readPassword(r.PasswordFile)
	}
	return r.Password.Reveal(), nil
}
