// Command ratelimitd is a rate-limit service: serve runs the daemon, the other
// subcommands help its operators. It imports all packages that it wires; none
// imports it.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/spelling"
)

// Exit codes beside 0.
const (
	exitError     = 1
	exitDifferent = 2 // check --diff or replay has found differences
	exitDenied    = 3
	exitPending   = 4 // done, and not every daemon is known to have it yet
)

// exitCode ends the program with this code. All messages were printed before.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit %d", int(e)) }

func main() {
	err := run(context.Background(), os.Args, os.Stdin, os.Stdout, os.Stderr)
	var code exitCode
	switch {
	case err == nil:
	case errors.As(err, &code):
		os.Exit(int(code))
	default:
		fmt.Fprintln(os.Stderr, "ratelimitd:", spelling.VisibleLines(err.Error()))
		os.Exit(exitError)
	}
}

// atLeastOne refuses a command line without arguments, and says what they are.
func atLeastOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("found no argument; allowed: %s. Usage: %s", what, cmd.UseLine())
		}
		return nil
	}
}

// run runs the command line; its first word is the program's name.
func run(ctx context.Context, words []string, stdin io.Reader, stdout, stderr io.Writer) error {
	args, asEnvoy := envoyArgs(words)
	root := ownCommand()
	if asEnvoy {
		root = envoyCommand(args)
	}
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetUsageFunc(usageAt(cmp.Or(columnsOf(stdout), helpColumns)))
	root.CompletionOptions.HiddenDefaultCmd = asEnvoy
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(flagError)
	cmd, err := root.ExecuteContextC(ctx)
	return ownWords(cmd, err)
}

func ownCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "ratelimitd",
		Short: "A rate-limit service for Envoy and for any program that speaks gRPC or HTTP",
		Long: `ratelimitd decides whether a request may pass. It reads limits from YAML files,
keeps their state in memory or in Redis, and answers Envoy's rate-limit RPC.`,
		Example: `  ratelimitd serve --limits-path deploy/limits
  ratelimitd query --domain api user=alice`,
	}
	root.Version = versionText()
	root.SetVersionTemplate(versionLine())
	root.AddGroup(
		&cobra.Group{ID: groupServe, Title: "Run it:"},
		&cobra.Group{ID: groupLook, Title: "Ask a running daemon:"},
		&cobra.Group{ID: groupSteer, Title: "Steer a running daemon and all that share its store:"},
	)
	addCommands(root, groupServe, serveCommand(), checkCommand(), replayCommand(), logCommand(), healthCommand(ownSettings), daemonsCommand(), tokenCommand())
	addCommands(root, groupLook, queryCommand(ownSettings), explainCommand(ownSettings), inspectCommand(ownSettings),
		topCommand(ownSettings), assignmentsCommand(ownSettings), auditCommand(ownSettings))
	addCommands(root, groupSteer, assignCommands(ownSettings)...)
	addCommands(root, groupSteer, resetCommand(ownSettings))
	root.AddCommand(versionCommand())
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
