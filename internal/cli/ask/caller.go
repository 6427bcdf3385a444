package ask

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// caller is a command that asks as the daemon's callers do.
type caller struct {
	to dial.Target
	// at are the flags of to.
	at     *pflag.FlagSet
	domain string
	json   bool
	// program is the name by which it was called, for commands that it recommends.
	program string
	timeout time.Duration
}

func newCaller(load dial.Loader) caller {
	return caller{to: dial.ToGRPC(load), timeout: 2 * time.Second}
}

// bind defines the flags of the command; answers says what it waits for, such as "the
// answer".
func (c *caller) bind(cmd *cobra.Command, load dial.Loader, answers string) {
	c.at = pflag.NewFlagSet("", pflag.ContinueOnError)
	c.to.Bind(c.at)
	cmd.Flags().AddFlagSet(c.at)
	dial.BindDomain(cmd, &c.domain, load)
	cmdline.BindJSON(cmd.Flags(), &c.json, answers)
	cmd.Flags().Var(cmdline.Wait(&c.timeout), "timeout", "how long to wait for "+answers)
}

// ask calls do with the daemon, within the user's timeout.
func (c *caller) ask(ctx context.Context, do func(ctx context.Context, client ratelimitv1.RateLimitServiceClient) error) error {
	conn, err := c.to.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if err := do(ctx, ratelimitv1.NewRateLimitServiceClient(conn)); err != nil {
		return c.to.Failure(conn, err)
	}
	return nil
}

// sameDaemon returns the flags that were given to reach the daemon.
func (c *caller) sameDaemon() (given []string) {
	c.at.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			given = append(given, "--"+f.Name+"="+f.Value.String())
		}
	})
	return given
}

// writeWhy names a command of the daemon's admin port that says why. The words follow
// --domain.
func (c *caller) writeWhy(out io.Writer, command string, words []string) error {
	if c.at.Changed("address") {
		command += " --admin-address HOST:PORT" // that of this daemon is not known
	}
	_, err := fmt.Fprintf(out, "why: %s %s --domain %s\n", c.program, command, shellWords(words))
	return err
}

// row is what an answer says of a limit of a descriptor.
type row struct {
	descriptor   uint32
	result, text string
	// isDone is whether it changed something.
	isDone bool
}

// writeRows writes the rows of each descriptor, and none for one without. It returns
// whether something of each descriptor was changed.
func writeRows(out io.Writer, args []string, rows []row, none row) (isDone bool, _ error) {
	width, resultWidth := 0, len(none.result)
	for _, arg := range args {
		width = max(width, len(arg))
	}
	for _, r := range rows {
		resultWidth = max(resultWidth, len(r.result))
	}
	write := func(arg string, r row) error {
		_, err := io.WriteString(out, spelling.VisibleLines(fmt.Sprintf("%-*s  %-*s  %s\n", resultWidth, r.result, width, arg, r.text)))
		return err
	}
	isDone = true
	for i, arg := range args {
		found, done := false, false
		for _, r := range rows {
			if int(r.descriptor) != i {
				continue
			}
			found, done = true, done || r.isDone
			if err := write(arg, r); err != nil {
				return false, err
			}
		}
		if !found {
			if err := write(arg, none); err != nil {
				return false, err
			}
		}
		isDone = isDone && done
	}
	return isDone, nil
}

// errUnchanged ends a command that has said that it changed nothing, or not all.
var errUnchanged = cmdline.ExitCode(cmdline.ExitError)

// named puts the name of a limit, if it has one, before a text.
func named(name, text string) string {
	if name == "" {
		return text
	}
	return name + ": " + text
}
