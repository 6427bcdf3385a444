package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
)

// versionOf returns the release, or the source version recorded in the build.
func versionOf(release string) string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// versionLine is what version and --version print.
func versionLine(version string) string {
	return fmt.Sprintf("ratelimitd %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func versionCommand(version string) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: `  ratelimitd version`,
		Args:    cmdline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return cmdline.WriteValue(cmd.OutOrStdout(), map[string]string{
					"version": version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
				})
			}
			_, err := io.WriteString(cmd.OutOrStdout(), versionLine(version))
			return err
		},
	}
	cmdline.BindJSON(cmd.Flags(), &asJSON, "it")
	return cmd
}
