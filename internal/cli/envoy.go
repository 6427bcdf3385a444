package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
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
// and configured by its environment. That service ignores all arguments; here one that
// means nothing is an error, since a command that does not exist would start a daemon.
func envoyCommand(version string) *cobra.Command {
	root := &cobra.Command{
		Use:   envoyName,
		Short: "Run ratelimitd in the place of envoyproxy/ratelimit",
		Long: `Runs ratelimitd by the environment of envoyproxy/ratelimit, with that service's
defaults, until SIGTERM or Ctrl-C. RATELIMITD_* variables are not read. Flags
are those of ratelimitd serve, and come before the environment: they say what it
cannot say.`,
		Example: `  REDIS_SOCKET_TYPE=tcp REDIS_URL=10.0.0.5:6379 \
    RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit ratelimit
  ratelimit --failure-mode local`,
	}
	serve := &cobra.Command{
		Use: "serve", Short: "Run the daemon, as without a command", Args: cmdline.NoArguments, Example: "  ratelimit serve --failure-mode local",
	}
	for _, cmd := range []*cobra.Command{root, serve} {
		settings.BindFlags(cmd.Flags())
		cmd.RunE = func(cmd *cobra.Command, _ []string) error {
			s, warnings, err := loadEnvoy(cmd)
			if err != nil {
				return err
			}
			return serveWith(cmd, version, s, warnings)
		}
	}
	withFlags := func(fs *pflag.FlagSet, _ string) (settings.Settings, []string, error) {
		return settings.LoadEnvoy(fs, os.Environ())
	}
	addAll(root, version, loading{ask: envoySettings, withFlags: withFlags}, serve, envoyCheckCommand())
	return root
}

// inEnvoyNames writes messages, a whole one at a time, in which settings and commands have
// the names that they have here.
type inEnvoyNames struct {
	to       io.Writer
	commands *regexp.Regexp
}

// Write implements io.Writer.
func (w inEnvoyNames) Write(message []byte) (int, error) {
	text := settings.InEnvoyNames(string(message))
	if _, err := io.WriteString(w.to, w.commands.ReplaceAllString(text, envoyName+" $1")); err != nil {
		return 0, err
	}
	return len(message), nil
}

// commandsOf matches the commands below root under the daemon's own name.
func commandsOf(root *cobra.Command) *regexp.Regexp {
	var names []string
	for _, cmd := range root.Commands() {
		names = append(names, regexp.QuoteMeta(cmd.Name()))
	}
	return regexp.MustCompile(`\bratelimitd (` + strings.Join(names, "|") + `)\b`)
}

// envoyCheckCommand checks limits files as under the other name. Without any it says
// beforehand what the daemon would say of its environment, and of the files that this names.
func envoyCheckCommand() *cobra.Command {
	cmd := filecmd.CheckCommand()
	checkFiles := cmd.RunE
	cmd.Use = "check [PATH...]"
	cmd.Long = `Without PATH, reads the environment of envoyproxy/ratelimit and the limits files
that it names, and starts nothing. Prints the warnings and errors of both; what
is warned of is not followed, or is accepted as that service accepts it. Exits
with 1 if there is an error. Flags are those of the daemon.

With PATH: ` + strings.ToLower(cmd.Long[:1]) + cmd.Long[1:]
	cmd.Example = "  ratelimitd check\n  ratelimitd check --failure-mode local\n" + cmd.Example
	cmd.Args = nil
	settings.BindFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, paths []string) error {
		if len(paths) > 0 {
			return checkFiles(cmd, paths)
		}
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
	}
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

// envoySettings returns the settings of a daemon started in this environment.
func envoySettings() (settings.Settings, error) {
	s, _, err := settings.LoadEnvoy(nil, os.Environ())
	return s, err
}
