package steer

import (
	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
)

// Commands are the commands that change something.
func Commands(load dial.Loader) []*cobra.Command {
	return []*cobra.Command{assignCommand(load), unassignCommand(load), blockCommand(load), unblockCommand(load), undoCommand(load), resetCommand(load)}
}
