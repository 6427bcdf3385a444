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
	err := runCommand(ctx, release, words, stdin, stdout, stderr)
	var code cmdline.ExitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintln(stderr, "ratelimitd:", spelling.VisibleLines(err.Error()))
	return cmdline.ExitError
}

func runCommand(ctx context.Context, release string, words []string, stdin io.Reader, stdout, stderr io.Writer) error {
	args, asEnvoy := envoyArgs(words)
	root := ownCommand(versionOf(release))
	if asEnvoy {
		root = envoyCommand(versionOf(release), args)
	}
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetUsageFunc(printUsage)
	root.CompletionOptions.HiddenDefaultCmd = asEnvoy
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
  ratelimitd query --domain api user=alice`,
	}
	root.Version = version
	root.SetVersionTemplate(versionLine(version))
	root.AddGroup(
		&cobra.Group{ID: groupServe, Title: "Run it:"},
		&cobra.Group{ID: groupLook, Title: "Ask a running daemon:"},
		&cobra.Group{ID: groupSteer, Title: "Steer a running daemon and all that share its store:"},
	)
	addCommands(root, groupServe, demoCommand(version), serveCommand(version), filecmd.CheckCommand(), filecmd.ReplayCommand(version), ask.HealthCommand(dial.OwnSettings), ask.DaemonsCommand(), filecmd.TokenCommand())
	addCommands(root, groupLook, ask.QueryCommand(dial.OwnSettings), ask.SettleCommand(dial.OwnSettings), ask.ReleaseCommand(dial.OwnSettings), ask.ExplainCommand(dial.OwnSettings), ask.InspectCommand(dial.OwnSettings),
		ask.TopCommand(dial.OwnSettings), ask.AssignmentsCommand(dial.OwnSettings), ask.AuditCommand(dial.OwnSettings))
	addCommands(root, groupSteer, steer.Commands(dial.OwnSettings)...)
	root.AddCommand(versionCommand(version))
	ownHelpCommand(root)
	ownCompletionCommands(root)
	return root
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
