package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/daemon"
)

func serveCommand(version string) *cobra.Command {
	file := ""
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon",
		Long: `Runs the daemon until SIGTERM or Ctrl-C. SIGHUP loads the limits files again.

A setting such as redis.addresses can stand in a YAML file (--config), in the
environment (RATELIMITD_REDIS_ADDRESSES) and on the command line
(--redis-addresses); the later wins.`,
		Example: `  ratelimitd serve --limits-path deploy/limits
  RATELIMITD_STORE=redis RATELIMITD_REDIS_ADDRESSES=10.0.0.5:6379 \
    ratelimitd serve --config ratelimitd.yaml`,
		Args: cmdline.NoArguments,
	}
	cmd.Flags().StringVar(&file, "config", os.Getenv("RATELIMITD_CONFIG"), "YAML file of settings")
	settings.BindFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, warnings, err := ownSettings(cmd.Flags(), file)
		if err != nil {
			return fmt.Errorf("settings:\n%w", err)
		}
		return serveWith(cmd, version, s, warnings)
	}
	return cmd
}

// ownSettings returns the settings from flags, the environment and a file.
func ownSettings(fs *pflag.FlagSet, file string) (settings.Settings, []string, error) {
	return settings.Load(fs, os.Environ(), file)
}

// serveWith logs the warnings about the settings, and serves.
func serveWith(cmd *cobra.Command, version string, s settings.Settings, warnings []string) error {
	log := daemon.NewLogger(cmd.ErrOrStderr(), s.Log)
	for _, w := range warnings {
		log.Warn(w)
	}
	return daemon.Run(cmd.Context(), version, s, log)
}
