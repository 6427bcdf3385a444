package dial

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/daemon/reach"
)

// OwnSettings returns the settings of a daemon started in this environment.
func OwnSettings() (settings.Settings, error) {
	s, _, err := settings.Load(nil, os.Environ(), os.Getenv("RATELIMITD_CONFIG"))
	return s, err
}

// ownDaemon returns the address at which a daemon started in this environment listens, as
// seen from the same machine, and its TLS configuration, if any.
func (t *Target) ownDaemon() (address string, c *tls.Config, err error) {
	s, err := t.settings()
	if err != nil {
		return "", nil, fmt.Errorf("the daemon's settings in this environment, which --%s makes needless:\n%w", t.port.flag, err)
	}
	own := t.port.of(s)
	address = own.address
	if address == "" && own.socket == "" {
		return "", nil, fmt.Errorf("a daemon with this environment has no %s: set %s, which is empty, or give --%s", t.port.name, t.port.setting, t.port.flag)
	}
	if port, ok := reach.OnAll(address); ok {
		address = net.JoinHostPort("127.0.0.1", port)
	}
	if own.socket != "" {
		address = "unix:" + own.socket
	}
	if own.tls.Cert == "" {
		return address, nil, nil
	}
	pair, err := tls.LoadX509KeyPair(own.tls.Cert, own.tls.Key)
	if err != nil {
		return "", nil, fmt.Errorf("the daemon's own certificate: %w", err)
	}
	return address, &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{pair}, // in case the daemon asks for one
		// The certificate names the daemon for other machines. Here it is verified by
		// being the very certificate in the daemon's file.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			if !bytes.Equal(state.PeerCertificates[0].Raw, pair.Certificate[0]) {
				return errors.New("the daemon shows another certificate than its settings name")
			}
			return nil
		},
	}, nil
}
