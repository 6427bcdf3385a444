// Package dial reaches a running daemon: by flags that say where it is, with TLS and a
// token, and with errors that say what to do. It also completes, in a shell, what the
// daemon knows. It imports the settings, and where daemons with them listen, and
// assigntext.
package dial

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/tlsfiles"
)

// Loader returns the settings of the daemon to ask if no flag says where it is.
type Loader func() (settings.Settings, error)

// Target says how to reach a port of a running daemon.
type Target struct {
	// settings returns those of the daemon to ask if no address is given.
	settings Loader
	port     port
	address  string
	timeout  time.Duration
	// tokenFile is the file with the token sent with each call.
	tokenFile                 string
	tls                       bool
	ca, cert, key, serverName string
}

// port is one of a daemon's ports.
type port struct {
	name    string // for people
	example string // an address
	flag    string // gives its address
	setting string // contains its address
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
		of: func(s settings.Settings) listener {
			return listener{address: s.GRPC.Address, socket: s.GRPC.Socket, tls: s.GRPC.TLS}
		},
	}
	adminPort = port{
		name: "admin port", example: "127.0.0.1:6070", flag: "admin-address", setting: "admin.address",
		tokens: "admin.tokens_file", maker: "ratelimitd token makes one",
		of: func(s settings.Settings) listener { return listener{address: s.Admin.Address, tls: s.Admin.TLS} },
	}
)

// ToGRPC is the gRPC port of the daemon with the settings that load returns, unless flags
// name another.
func ToGRPC(load Loader) Target {
	return Target{settings: load, port: grpcPort}
}

// ToAdmin is the admin port of the daemon with the settings that load returns, unless
// flags name another.
func ToAdmin(load Loader) Target {
	return Target{settings: load, port: adminPort, timeout: 10 * time.Second}
}

// Bind defines the flags that say where the daemon is, and who asks.
func (t *Target) Bind(fs *pflag.FlagSet) {
	where := "host:port of the daemon's " + t.port.name
	if t.port.flag == grpcPort.flag {
		where += ", or unix:path of its socket"
	}
	fs.StringVar(&t.address, t.port.flag, "", where+" (default: where a daemon with this environment listens)")
	if t.port.flag == adminPort.flag {
		fs.Var(cmdline.Wait(&t.timeout), "timeout", "how long to wait for each answer")
	}
	fs.StringVar(&t.tokenFile, "token-file", "", "file of the token that the daemon asks for (default: the variable "+TokenVariable+")")
	fs.BoolVar(&t.tls, "tls", false, "use TLS; the other --tls flags imply it")
	fs.StringVar(&t.ca, "tls-ca", "", "file of the certificates that sign the daemon's (default: the system's)")
	fs.StringVar(&t.cert, "tls-cert", "", "file of our certificate, where the daemon asks for one")
	fs.StringVar(&t.key, "tls-key", "", "file of our certificate's key")
	fs.StringVar(&t.serverName, "tls-server-name", "", "name in the daemon's certificate (default: the host)")
}

// isDialled reports whether an address is host:port or names a gRPC resolver. Without a
// port gRPC would use 443.
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

// maxReceived bounds an answer in bytes: a page of assignments may be large.
const maxReceived = 64 << 20

// where returns the address of the daemon, how to use TLS with it, if at all, and the token
// to send.
func (t *Target) where() (address string, c *tls.Config, token bearer, err error) {
	if token, err = t.token(); err != nil {
		return "", nil, "", err
	}
	address = t.address
	if address == "" {
		if address, c, err = t.ownDaemon(); err != nil {
			return "", nil, "", err
		}
	}
	if !isDialled(address) {
		return "", nil, "", fmt.Errorf("flag --%s: found %q; allowed: host:port, such as %s", t.port.flag, address, t.port.example)
	}
	if t.usesTLS() {
		if c, err = t.tlsConfig(); err != nil {
			return "", nil, "", err
		}
	}
	return address, c, token, nil
}

// Dial returns a connection to the daemon, which is established at the first call.
func (t *Target) Dial() (*grpc.ClientConn, error) {
	address, c, token, err := t.where()
	if err != nil {
		return nil, err
	}
	creds := insecure.NewCredentials()
	if c != nil {
		creds = credentials.NewTLS(c)
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceived))}
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
