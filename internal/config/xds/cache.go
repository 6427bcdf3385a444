package xds

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// loadCache puts the cached configuration in force. An unusable cache is no reason to
// stop: the server has a better one.
func (c *Client) loadCache() {
	path := c.options.CachePath
	response, written, err := c.readCache(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = c.options.Live.Feed(readResponse(response))
	}
	if err != nil {
		c.log.Warn("xds: the configuration in the cache cannot be used; the server's is waited for", "path", path, "error", err)
		return
	}
	version := response.GetVersionInfo()
	c.changeStatus(func(st *status) { st.version, st.cachedAt = version, written })
	c.log.Warn("xds: limits are those of the cache until the server sends its own", "path", path, "version", version, "written", written)
}

// readCache returns the response in the file, and when it was written. The file is a sum
// and the DiscoveryResponse.
func (c *Client) readCache(path string) (response *discoveryv3.DiscoveryResponse, written time.Time, err error) {
	all, err := os.ReadFile(path)
	if err != nil {
		return nil, written, err
	}
	if info, err := os.Stat(path); err == nil {
		written = info.ModTime()
	}
	if len(all) < sha256.Size || [sha256.Size]byte(all) != c.cacheSum(all[sha256.Size:]) {
		return nil, written, errors.New("it is torn, or of another limits.xds.address or limits.xds.node_id")
	}
	response = new(discoveryv3.DiscoveryResponse)
	return response, written, proto.Unmarshal(all[sha256.Size:], response)
}

// cacheSum returns the sum of a response and of the names of its server and node.
func (c *Client) cacheSum(data []byte) [sha256.Size]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q\n", c.options.Address, c.options.NodeID)
	h.Write(data)
	return [sha256.Size]byte(h.Sum(nil))
}

// saveCache writes an accepted configuration to the cache, if there is one.
func (c *Client) saveCache(response *discoveryv3.DiscoveryResponse) {
	if c.options.CachePath == "" {
		return
	}
	if err := c.writeCache(response); err != nil {
		c.log.Warn("xds: the configuration cannot be kept; a restart without the server would have an older one, or none",
			"path", c.options.CachePath, "error", err)
	}
}

// writeCache replaces the file as a whole: a daemon killed while writing leaves the old
// one. Only the daemon's own user may read it, since limits may name customers.
func (c *Client) writeCache(response *discoveryv3.DiscoveryResponse) error {
	path := c.options.CachePath
	data, err := proto.Marshal(response)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // with mode 0600
	if err != nil {
		return err
	}
	sum := c.cacheSum(data)
	_, err = f.Write(append(sum[:], data...))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
