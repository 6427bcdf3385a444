// Package reach says where a daemon with given settings listens, and connects to its Redis.
// It imports the settings, redisconn and the script.
package reach

import (
	"net"
	"os"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
)

// OnAll returns the port of a listener on all addresses of the machine. It
// returns false for any other.
func OnAll(address string) (port string, ok bool) {
	host, port, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return port, err == nil && (host == "" || ip != nil && ip.IsUnspecified())
}

// Address returns the address by which people find this daemon.
func Address(g settings.GRPC) string {
	name, err := os.Hostname()
	if g.Socket != "" {
		return name + ":" + g.Socket
	}
	if port, ok := OnAll(g.Address); ok && err == nil {
		return net.JoinHostPort(name, port)
	}
	return g.Address
}
