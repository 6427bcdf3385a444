package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
)

// envoyName is the name of envoyproxy/ratelimit's program. Under this name the
// daemon takes its place.
const envoyName = "ratelimit"

// envoyArgs returns the arguments behind the name of the program, and whether that
// is envoyName. An image's entrypoint may stand before the name; the name is then
// the image's command.
func envoyArgs(words []string) (args []string, asEnvoy bool) {
	for i, word := range words[:min(2, len(words))] {
		if filepath.Base(word) == envoyName {
			return words[i+1:], true
		}
	}
	return words[1:], false
}

// envoyCommand runs the daemon as envoyproxy/ratelimit is run: without a
// subcommand, and by its environment.
func envoyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   envoyName,
		Short: "Run ratelimitd in the place of envoyproxy/ratelimit",
		Long: `Runs ratelimitd by the environment of envoyproxy/ratelimit, with that service's
defaults, until SIGTERM or Ctrl-C. RATELIMITD_* variables are not read. Flags are
those of ratelimitd serve, and come before the environment: they say what it
cannot say.`,
		Example: `  REDIS_SOCKET_TYPE=tcp REDIS_URL=10.0.0.5:6379 RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit ratelimit
  ratelimit --failure-mode local`,
		Args: noArguments,
	}
	settings.BindFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, warnings, err := settings.LoadEnvoy(cmd.Flags(), os.Environ())
		if err != nil {
			return fmt.Errorf("settings, from the environment of envoyproxy/ratelimit:\n%w", err)
		}
		return serveWith(cmd, s, warnings)
	}
	cmd.AddCommand(queryCommand(envoySettings), healthCommand(envoySettings), versionCommand())
	return cmd
}

// envoySettings returns the settings of a daemon with this environment.
func envoySettings() (settings.Settings, error) {
	s, _, err := settings.LoadEnvoy(nil, os.Environ())
	return s, err
}
