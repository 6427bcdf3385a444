package dial

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
)

func (t *Target) usesTLS() bool {
	return t.tls || t.ca != "" || t.cert != "" || t.key != "" || t.serverName != ""
}

func (t *Target) tlsConfig() (*tls.Config, error) {
	c := &tls.Config{ServerName: t.serverName, MinVersion: tls.VersionTLS12}
	if t.ca != "" {
		pem, err := os.ReadFile(t.ca)
		if err != nil {
			return nil, fmt.Errorf("--tls-ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--tls-ca: %s holds no certificate in PEM", t.ca)
		}
	}
	if t.cert != "" || t.key != "" {
		if t.cert == "" || t.key == "" {
			return nil, errors.New("--tls-cert and --tls-key go together")
		}
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert: %s", strings.TrimPrefix(err.Error(), "tls: "))
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
