package xds

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// The cache is cacheMagic, a SHA-256 of what follows with the names of the server and the
// node, and the DiscoveryResponse as received.
const cacheMagic = "ratelimitd xds cache 1\n"

// loadCache puts the cached configuration in force. An unusable cache is no reason to
// stop: the server has a better one.
func (c *Client) loadCache() {
	path := c.options.CachePath
	data, written, err := c.readCache(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var s *snapshot
	if err == nil {
		s, err = readSnapshot(data)
	}
	if err == nil {
		err = s.checkEnvelope()
	}
	if err == nil {
		err = c.load(s)
	}
	if err != nil {
		c.log.Warn("xds: the configuration in the cache cannot be used; the server's is waited for", "path", path, "error", err)
		return
	}
	c.cached = s.digest
	c.status.Version, c.status.CachedAt = s.version, written
	c.log.Warn("xds: limits are those of the cache until the server sends its own", "path", path, "version", s.version, "written", written)
}

// readCache returns the response in the file, and when it was written.
func (c *Client) readCache(path string) (data []byte, written time.Time, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, time.Time{}, err
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait for its other end
		return nil, time.Time{}, fmt.Errorf("%s is no file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer f.Close()
	maxSize := int64(len(cacheMagic) + sha256.Size + c.options.MaxBytes)
	all, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	switch {
	case err != nil:
		return nil, time.Time{}, err
	case int64(len(all)) > maxSize:
		return nil, time.Time{}, fmt.Errorf("it is larger than limits.xds.max_bytes, %d bytes", c.options.MaxBytes)
	}
	rest, ok := bytes.CutPrefix(all, []byte(cacheMagic))
	if !ok || len(rest) < sha256.Size {
		return nil, time.Time{}, errors.New("it is no cache of limits")
	}
	sum, data := [sha256.Size]byte(rest), rest[sha256.Size:]
	if sum != c.cacheSum(data) {
		return nil, time.Time{}, errors.New("it is torn, or of another limits.xds.address or limits.xds.node_id")
	}
	return data, info.ModTime(), nil
}

func (c *Client) cacheSum(data []byte) [sha256.Size]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q\n", c.options.Address, c.options.NodeID)
	h.Write(data)
	return [sha256.Size]byte(h.Sum(nil))
}

// saveCache writes an accepted configuration to the cache, unless it is already there.
func (c *Client) saveCache(s *snapshot, data []byte) {
	if c.options.CachePath == "" || s.digest == c.cached {
		return
	}
	if err := c.writeCache(data); err != nil {
		if _, due := c.notCached.Due(time.Now(), logEvery); due {
			c.log.Warn("xds: the configuration cannot be kept; a restart without the server would have an older one, or none",
				"path", c.options.CachePath, "error", err)
		}
		return
	}
	c.cached = s.digest
}

// writeCache replaces the file as a whole: a daemon killed while writing leaves the old
// one. Only the daemon's own user may read it, since limits may name customers.
func (c *Client) writeCache(data []byte) (err error) {
	path := c.options.CachePath
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	sum := c.cacheSum(data)
	for _, part := range [][]byte{[]byte(cacheMagic), sum[:], data} {
		if _, err := f.Write(part); err != nil {
			f.Close()
			return err
		}
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
