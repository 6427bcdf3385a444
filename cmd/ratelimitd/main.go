// Command ratelimitd is a rate-limit service: serve runs the daemon, the other
// subcommands help its operators.
package main

import (
	"context"
	"os"

	"github.com/ratelimitd/ratelimitd/internal/cli"
)

// version is set by the linker for a release.
var version = ""

func main() {
	os.Exit(cli.Run(context.Background(), version, os.Args, os.Stdin, os.Stdout, os.Stderr))
}
