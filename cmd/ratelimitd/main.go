// Command ratelimitd is a rate-limit service: serve runs the daemon, the other
// subcommands help its operators. It imports all packages that it wires; none
// imports it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// Exit codes beside 0.
const (
	exitError  = 1
	exitDenied = 3
)

// exitCode ends the program with this code. All messages were printed before.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit %d", int(e)) }

func main() {
	err := run(context.Background(), os.Args, os.Stdout, os.Stderr)
	var code exitCode
	switch {
	case err == nil:
	case errors.As(err, &code):
		os.Exit(int(code))
	default:
		fmt.Fprintln(os.Stderr, "ratelimitd:", err)
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
func run(ctx context.Context, words []string, stdout, stderr io.Writer) error {
	args, asEnvoy := envoyArgs(words)
	root := ownCommand()
	if asEnvoy {
		root = envoyCommand(args)
	}
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(flagError)
	return root.ExecuteContext(ctx)
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
	root.AddCommand(serveCommand(), checkCommand(), queryCommand(ownSettings), healthCommand(ownSettings), daemonsCommand(), versionCommand())
	return root
}
