package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/ask"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/cli/filecmd"
	"github.com/ratelimitd/ratelimitd/internal/cli/steer"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
)

// Run runs the command line, whose first word is the program's name, and returns the exit
// code. release is empty if this is not a release.
func Run(ctx context.Context, release string, words []string, stdin io.Reader, stdout, stderr io.Writer) int {
	args, asEnvoy := envoyArgs(words)
	root := ownCommand(versionOf(release))
	if asEnvoy {
		root = envoyCommand(versionOf(release))
		stderr = inEnvoyNames{to: stderr, commands: commandsOf(root)}
	}
	err := runCommand(ctx, root, args, stdin, stdout, stderr)
	var code cmdline.ExitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintln(stderr, root.Name()+":", spelling.VisibleLines(err.Error()))
	return cmdline.ExitError
}

func runCommand(ctx context.Context, root *cobra.Command, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetUsageFunc(printUsage)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(cmdline.FlagError)
	cmd, err := root.ExecuteContextC(ctx)
	return cmdline.OwnWords(cmd, err)
}

func ownCommand(version string) *cobra.Command {
	root := &cobra.Command{
		Use:   "ratelimitd",
		Short: "A rate-limit service for Envoy and for any program that speaks gRPC or HTTP",
		Long: `ratelimitd decides whether a request may pass. It reads limits from YAML files,
keeps their state in memory or in Redis, and answers Envoy's rate-limit RPC.`,
		Example: `  ratelimitd demo
  ratelimitd serve --limits-path deploy/limits
  ratelimitd take --domain api user=alice`,
	}
	addAll(root, version, loading{ask: dial.OwnSettings, withFlags: ownSettings}, serveCommand(version), filecmd.CheckCommand())
	return root
}

// loading is how commands get the settings of a daemon started in this environment.
type loading struct {
	ask       dial.Loader
	withFlags ask.SettingsLoader
}

// addAll adds the commands, which are the same under both names of the program except for
// those that start from settings.
func addAll(root *cobra.Command, version string, load loading, serve, check *cobra.Command) {
	root.Version = version
	root.SetVersionTemplate(versionLine(version))
	root.AddGroup(
		&cobra.Group{ID: groupServe, Title: "Run it:"},
		&cobra.Group{ID: groupLook, Title: "Ask a running daemon:"},
		&cobra.Group{ID: groupSteer, Title: "Steer a running daemon and all that share its store:"},
	)
	addCommands(root, groupServe, demoCommand(version), serve, check, filecmd.ReplayCommand(version), ask.HealthCommand(load.ask), ask.StatusCommand(load.ask), ask.DaemonsCommand(load.withFlags), filecmd.TokenCommand())
	addCommands(root, groupLook, ask.TakeCommand(load.ask), ask.SettleCommand(load.ask), ask.ReleaseCommand(load.ask), ask.ExplainCommand(load.ask), ask.InspectCommand(load.ask),
		ask.TopCommand(load.ask), ask.AssignmentsCommand(load.ask), ask.AuditCommand(load.ask))
	addCommands(root, groupSteer, steer.Commands(load.ask)...)
	root.AddCommand(versionCommand(version))
	ownHelpCommand(root)
	ownCompletionCommands(root)
}

// Groups of commands, as help shows them.
const (
	groupServe = "serve"
	groupLook  = "look"
	groupSteer = "steer"
)

func addCommands(root *cobra.Command, group string, commands ...*cobra.Command) {
	for _, c := range commands {
		c.GroupID = group
		root.AddCommand(c)
	}
}
