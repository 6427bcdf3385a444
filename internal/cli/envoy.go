package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/cli/ask"
	"github.com/ratelimitd/ratelimitd/internal/cli/filecmd"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
)

// envoyName is the name of envoyproxy/ratelimit's program. Under this name the daemon
// replaces it.
const envoyName = "ratelimit"

// envoyArgs returns the arguments after the name of the program, and whether that is
// envoyName. An image's entrypoint may precede the name; the name is then the image's
// command.
func envoyArgs(words []string) (args []string, asEnvoy bool) {
	for i, word := range words[:min(2, len(words))] {
		if filepath.Base(word) == envoyName {
			return words[i+1:], true
		}
	}
	return words[1:], false
}

// envoyCommand runs the daemon the way envoyproxy/ratelimit is run: without a subcommand,
// and configured by its environment. That service ignores all arguments, so some may be
// given that mean nothing; those in args that the daemon does not know cause a warning.
func envoyCommand(version string, args []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   envoyName,
		Short: "Run ratelimitd in the place of envoyproxy/ratelimit",
		Long: `Runs ratelimitd by the environment of envoyproxy/ratelimit, with that service's
defaults, until SIGTERM or Ctrl-C. RATELIMITD_* variables are not read. Flags
are those of ratelimitd serve, and come before the environment: they say what it
cannot say. Other arguments are ignored, with a warning.`,
		Example: `  REDIS_SOCKET_TYPE=tcp REDIS_URL=10.0.0.5:6379 \
    RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit ratelimit
  ratelimit --failure-mode local`,
		Args:               cobra.ArbitraryArgs,
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
	}
	settings.BindFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, warnings, err := loadEnvoy(cmd)
		if err != nil {
			return err
		}
		if unknown := unknownArguments(cmd.Flags(), args); len(unknown) > 0 {
			warnings = append(warnings, fmt.Sprintf("arguments that mean nothing here are ignored, as envoyproxy/ratelimit ignores all: %q", unknown))
		}
		return serveWith(cmd, version, s, warnings)
	}
	cmd.AddCommand(envoyCheckCommand(), ask.QueryCommand(envoySettings), ask.HealthCommand(envoySettings), versionCommand(version))
	return cmd
}

// envoyCheckCommand says beforehand what the daemon would say of its environment, and of
// the limits files that this names.
func envoyCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say what the daemon would say of this environment and its limits files",
		Long: `Reads the environment of envoyproxy/ratelimit and the limits files that it
names, and starts nothing. Prints the warnings and errors of both; what is
warned of is not followed, or is accepted as that service accepts it. Exits with
1 if there is an error. Flags are those of the daemon.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, warnings, err := loadEnvoy(cmd)
			for _, w := range warnings {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+w)
			}
			if err != nil {
				return err
			}
			if s.Limits.Source == settings.SourceXDS {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "the limits are those of the xDS server at %s\n", s.Limits.XDS.Address)
				return err
			}
			return filecmd.CheckFiles(cmd, limitsfile.Options{Lenient: s.Limits.Lenient, MergeDomains: s.Limits.MergeDomains}, s.Limits.Path)
		},
	}
	settings.BindFlags(cmd.Flags())
	return cmd
}

// loadEnvoy returns the settings of this environment and the flags of a command, and
// warnings about them.
func loadEnvoy(cmd *cobra.Command) (settings.Settings, []string, error) {
	s, warnings, err := settings.LoadEnvoy(cmd.Flags(), os.Environ())
	if err != nil {
		err = fmt.Errorf("settings, from the environment of envoyproxy/ratelimit:\n%w", err)
	}
	return s, warnings, err
}

// unknownArguments returns the arguments that fs does not know, without the values of
// flags, which may be secret.
func unknownArguments(fs *pflag.FlagSet, args []string) (unknown []string) {
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			continue
		}
		name, isFlag := strings.CutPrefix(args[i], "-")
		if !isFlag {
			unknown = append(unknown, args[i])
			continue
		}
		name, _, hasValue := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		f := fs.Lookup(name)
		if f == nil {
			unknown = append(unknown, strings.Split(args[i], "=")[0])
		}
		if !hasValue && (f == nil || f.NoOptDefVal == "") && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			i++ // the value
		}
	}
	return unknown
}

// envoySettings returns the settings of a daemon started in this environment.
func envoySettings() (settings.Settings, error) {
	s, _, err := settings.LoadEnvoy(nil, os.Environ())
	return s, err
}
