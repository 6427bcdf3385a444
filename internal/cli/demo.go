package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/daemon"
)

// demo is a command line of demo.
type demo struct {
	version string
	dir     string // empty for a temporary folder
	limits  string // empty for the embedded ones
	ports   []*port
	out     io.Writer
	errOut  io.Writer
}

// port is one of the daemon's, with the address to listen at.
type port struct {
	name, flag string
	// setting is the flag of serve for the same.
	setting string
	address string
	// isGiven is set if the user names the address: then no other one will do.
	isGiven bool
}

// demoCommand runs the demo. The version is the daemon's.
func demoCommand(version string) *cobra.Command {
	d := demo{version: version, ports: []*port{
		{name: "gRPC", setting: "grpc-address", flag: "grpc", address: "127.0.0.1:8081"},
		{name: "HTTP", setting: "http-address", flag: "http", address: "127.0.0.1:8080"},
		{name: "admin", setting: "admin-address", flag: "admin", address: "127.0.0.1:6070"},
	}}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a daemon with example limits, and see a caller denied",
		Long: `Runs a daemon with example limits, has a caller ask until it is denied, says
what to try next, and serves until Ctrl-C. It needs nothing but this program.

State is in memory. The limits files, which may be edited meanwhile, and a token
are in a temporary folder that is removed at the end. Only this machine reaches
the ports. If one is taken, the demo uses another and names it. Settings in the
environment do not count.`,
		Example: `  ratelimitd demo
  ratelimitd demo --http 127.0.0.1:9080
  ratelimitd demo --dir demo   # keeps its files`,
		Args: cmdline.NoArguments,
	}
	fs := cmd.Flags()
	for _, p := range d.ports {
		fs.StringVar(&p.address, p.flag, p.address, fmt.Sprintf("host:port of the %s port; if it is not given, another where it is taken", p.name))
	}
	fs.StringVar(&d.limits, "limits", "", "limits file or folder to serve in place of the examples")
	fs.StringVar(&d.dir, "dir", "", "folder for the demo's files; they stay there (default: a temporary one)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d.out, d.errOut = cmd.OutOrStdout(), cmd.ErrOrStderr()
		for _, p := range d.ports {
			p.isGiven = fs.Changed(p.flag)
		}
		return d.run(cmd.Context())
	}
	return cmd
}

// run runs the demo until a signal or the end of ctx.
func (d *demo) run(ctx context.Context) (err error) {
	// The daemon hears of the first two by itself. A demo whose terminal is closed ends,
	// and one whose reader goes away still removes its folder.
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	signal.Ignore(syscall.SIGPIPE)
	defer signal.Reset(syscall.SIGPIPE)

	f, err := d.makeFiles()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.remove()) }()
	asked, err := f.ruleOf(domain, subject)
	if err != nil {
		return err
	}
	if d.ports[0].address == "" {
		return errors.New("flag --grpc: found nothing; allowed: host:port, where the demo's callers ask")
	}
	d.findPorts()
	s, warnings, err := d.settings(f)
	if err != nil {
		return err
	}
	log := daemon.NewLogger(d.errOut, s.Log)
	for _, w := range warnings {
		log.Warn(w)
	}
	return d.serve(ctx, s, log, story{out: d.out, files: f, asked: asked})
}

// serve runs the daemon, and the story once it listens.
func (d *demo) serve(ctx context.Context, s settings.Settings, log *slog.Logger, story story) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listening, ended := make(chan daemon.Addresses, 1), make(chan error, 1)
	go func() {
		ended <- daemon.RunListening(ctx, d.version, s, log, func(at daemon.Addresses) { listening <- at })
	}()
	select {
	case err := <-ended:
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w; allowed: a free port, or no flag for it, and the demo finds one", err)
		}
		return err
	case at := <-listening:
		if err := story.run(ctx, at); err != nil && ctx.Err() == nil {
			cancel()
			return errors.Join(err, <-ended)
		}
	}
	return <-ended
}

// findPorts chooses other ports for those that are taken, and leaves which to the system.
func (d *demo) findPorts() {
	for _, p := range d.ports {
		if p.isGiven {
			continue
		}
		l, err := net.Listen("tcp", p.address)
		if err == nil {
			err = l.Close()
		}
		if err != nil {
			fmt.Fprintf(d.out, "%s is taken: the %s port is another.\n", p.address, p.name)
			p.address = "127.0.0.1:0"
		}
	}
}

// settings returns those of the daemon.
func (d *demo) settings(f files) (settings.Settings, []string, error) {
	flags := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	settings.BindFlags(flags)
	values := map[string]string{
		"limits-path":       f.limits,
		"assignments-path":  f.assignments,
		"admin-tokens-file": f.tokens,
		"drain-delay":       "0s",
		"log-level":         "warn",
	}
	for _, p := range d.ports {
		values[p.setting] = p.address
	}
	for name, value := range values {
		if err := flags.Set(name, value); err != nil {
			return settings.Settings{}, nil, err
		}
	}
	s, warnings, err := settings.Load(flags, nil, "")
	if err != nil {
		err = errors.New(d.inOwnFlags(err.Error()))
	}
	return s, warnings, err
}

// inOwnFlags names the flags of demo in an error that names those of serve.
func (d *demo) inOwnFlags(text string) string {
	for _, p := range d.ports {
		text = strings.ReplaceAll(text, "--"+p.setting+":", "--"+p.flag+":")
	}
	return text
}
