package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/daemon/ownaddress"
	"github.com/ratelimitd/ratelimitd/internal/tlsfiles"
)

// target says how to reach a port of a running daemon.
type target struct {
	// settings returns those of the daemon to ask if no address is given.
	settings func() (settings.Settings, error)
	port     port
	address  string
	timeout  time.Duration
	// maxWait is how long changes wait at most for all daemons; nil: as they do without.
	maxWait *durationpb.Duration
	// tokenFile is the file of the token that goes with each call.
	tokenFile                 string
	tls                       bool
	ca, cert, key, serverName string
}

// port is one of a daemon's.
type port struct {
	name    string // for people
	example string // an address
	flag    string // gives its address
	setting string // has its address
	tokens  string // the setting that names its file of tokens
	maker   string // says how to make one
	of      func(settings.Settings) listener
}

// listener is where a daemon listens.
type listener struct {
	address string // may be empty for a port that is off
	socket  string // if not empty, in place of the address
	tls     tlsfiles.Server
}

var (
	grpcPort = port{
		name: "gRPC port", example: "127.0.0.1:8081", flag: "address", setting: "grpc.address",
		tokens: "api.callers_file", maker: "docs/access.md shows how to make one",
		of: func(s settings.Settings) listener { return listener{s.GRPC.Address, s.GRPC.Socket, s.GRPC.TLS} },
	}
	adminPort = port{
		name: "admin port", example: "127.0.0.1:6070", flag: "admin-address", setting: "admin.address",
		tokens: "admin.tokens_file", maker: "ratelimitd token makes one",
		of: func(s settings.Settings) listener { return listener{address: s.Admin.Address, tls: s.Admin.TLS} },
	}
)

func grpcTarget(load func() (settings.Settings, error)) target {
	return target{settings: load, port: grpcPort}
}

func adminTarget(load func() (settings.Settings, error)) target {
	return target{settings: load, port: adminPort, timeout: 10 * time.Second}
}

func (t *target) bind(fs *pflag.FlagSet) {
	where := "host:port of the daemon's " + t.port.name
	if t.port.flag == grpcPort.flag {
		where += ", or unix:path of its socket"
	}
	fs.StringVar(&t.address, t.port.flag, "", where+" (default: where a daemon with this environment listens)")
	if t.port.flag == adminPort.flag {
		fs.Var(waitFlag{&t.timeout}, "timeout", "how long to wait for each answer")
	}
	fs.StringVar(&t.tokenFile, "token-file", "", "file of the token that the daemon asks for (default: the variable "+tokenVariable+")")
	fs.BoolVar(&t.tls, "tls", false, "use TLS; the other --tls flags imply it")
	fs.StringVar(&t.ca, "tls-ca", "", "file of the certificates that sign the daemon's (default: the system's)")
	fs.StringVar(&t.cert, "tls-cert", "", "file of our certificate, where the daemon asks for one")
	fs.StringVar(&t.key, "tls-key", "", "file of our certificate's key")
	fs.StringVar(&t.serverName, "tls-server-name", "", "name in the daemon's certificate (default: the host)")
}

// bindChange is bind for a command that changes something at all daemons.
func (t *target) bindChange(fs *pflag.FlagSet) {
	t.bind(fs)
	fs.Var(maxWaitFlag{&t.maxWait}, "max-wait", "how long to wait at most until all daemons have it, "+maxWaitFlag{}.allowed()+" (default: 2s, or 9s for a new register)")
}

// isDialled reports whether an address is host:port or names a resolver of gRPC's.
// Without a port gRPC would take 443.
func isDialled(address string) bool {
	if strings.HasPrefix(address, "http:") || strings.HasPrefix(address, "https:") {
		return false
	}
	if strings.HasPrefix(address, "unix:") || strings.Contains(address, ":///") {
		return true
	}
	_, port, err := net.SplitHostPort(address)
	return err == nil && port != ""
}

// mostReceived bounds an answer in bytes: a page of assignments may be large.
const mostReceived = 64 << 20

func (t *target) dial() (*grpc.ClientConn, error) {
	address, c := t.address, (*tls.Config)(nil)
	token, err := t.token()
	if err != nil {
		return nil, err
	}
	if address == "" {
		if address, c, err = t.ownDaemon(); err != nil {
			return nil, err
		}
	}
	if !isDialled(address) {
		return nil, fmt.Errorf("flag --%s: found %q; allowed: host:port, such as %s", t.port.flag, address, t.port.example)
	}
	if t.usesTLS() {
		if c, err = t.tlsConfig(); err != nil {
			return nil, err
		}
	}
	creds := insecure.NewCredentials()
	if c != nil {
		creds = credentials.NewTLS(c)
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(mostReceived))}
	if token != "" {
		if c == nil && !onThisMachine(address) {
			fmt.Fprintf(os.Stderr, "warning: the token goes to %s unencrypted; --tls or --tls-ca encrypts\n", address)
		}
		options = append(options, grpc.WithPerRPCCredentials(token))
	}
	conn, err := grpc.NewClient(address, options...)
	if err != nil {
		return nil, fmt.Errorf("--%s %s: %w", t.port.flag, address, err)
	}
	return conn, nil
}

// failure returns an error that says why a call on conn failed, and what to do.
func (t *target) failure(conn *grpc.ClientConn, err error) error {
	s := status.Convert(err)
	if s.Code() == codes.Unavailable && strings.Contains(s.Message(), "connection error") {
		advice := t.advice()
		if strings.Contains(s.Message(), "does not look like a TLS handshake") {
			advice = "the port speaks no TLS: leave out the --tls flags"
		}
		return callError{fmt.Sprintf("%s cannot be reached: %s\n%s", conn.Target(), s.Message(), advice), err}
	}
	text := fmt.Sprintf("%s answers %s: %s", conn.Target(), s.Code(), s.Message())
	switch s.Code() {
	case codes.Unimplemented:
		if !strings.Contains(s.Message(), "unknown") && !strings.Contains(s.Message(), "HTTP") {
			break // the daemon itself says why
		}
		text += fmt.Sprintf("\nthis is not the %s of a daemon that knows this command: look at --%s, and at the daemon's version", t.port.name, t.port.flag)
	case codes.DeadlineExceeded:
		text = fmt.Sprintf("%s has not answered within --timeout: %s", conn.Target(), s.Message())
	case codes.Unauthenticated, codes.PermissionDenied:
		text = fmt.Sprintf("%s refuses: %s\n%s", conn.Target(), s.Message(), t.tokenAdvice(s.Code()))
	}
	return callError{text, err}
}

// tokenAdvice says what to do after a refusal.
func (t *target) tokenAdvice(code codes.Code) string {
	const where = "in the variable " + tokenVariable + ", or in a file with --token-file"
	token, err := t.token()
	switch {
	case err == nil && token == "" && t.cert == "":
		return "no token was given: put one " + where + ". The daemon knows those of its setting " + t.port.tokens + "; " + t.port.maker
	case code == codes.Unauthenticated:
		return "give a token that is in the daemon's " + t.port.tokens + ": " + where
	}
	return "give a token of somebody who may do this: " + where
}

// callError is the error of a call, worded for people.
type callError struct {
	text string
	err  error // with the status
}

func (e callError) Error() string { return e.text }
func (e callError) Unwrap() error { return e.err }

// advice says what to start or to set so that the daemon can be reached.
func (t *target) advice() string {
	return fmt.Sprintf("start a daemon there (ratelimitd serve --limits-path FOLDER), or say where one listens: with --%s, or with the daemon's own environment (%s); a port with TLS needs --tls or --tls-ca",
		t.port.flag, t.port.setting)
}

// ownSettings returns the settings of a daemon with this environment.
func ownSettings() (settings.Settings, error) {
	s, _, err := settings.Load(nil, os.Environ(), os.Getenv("RATELIMITD_CONFIG"))
	return s, err
}

// ownDaemon returns the address at which a daemon with this environment listens, as
// seen from the same machine, and its TLS, if it has any.
func (t *target) ownDaemon() (address string, c *tls.Config, err error) {
	s, err := t.settings()
	if err != nil {
		return "", nil, fmt.Errorf("the daemon's settings in this environment, which --%s makes needless:\n%w", t.port.flag, err)
	}
	own := t.port.of(s)
	address = own.address
	if address == "" && own.socket == "" {
		return "", nil, fmt.Errorf("a daemon with this environment has no %s: set %s, which is empty, or give --%s", t.port.name, t.port.setting, t.port.flag)
	}
	if port, ok := ownaddress.OnAll(address); ok {
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
		Certificates: []tls.Certificate{pair}, // where the daemon asks for one
		// The certificate names the daemon for other machines. Here it is known
		// by having the very certificate that is in its file.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			if !bytes.Equal(state.PeerCertificates[0].Raw, pair.Certificate[0]) {
				return errors.New("the daemon shows another certificate than its settings name")
			}
			return nil
		},
	}, nil
}

func (t *target) tlsConfig() (*tls.Config, error) {
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
