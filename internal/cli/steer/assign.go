package steer

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/zone"
	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// assigning is a command line of assign.
type assigning struct {
	to                  dial.Target
	given               adminv1.Assignment // without entries or an end
	ends                end
	rows                importer // of --from
	calendar            adminv1.AssignedCalendar
	only, force, asJSON bool
}

func assignCommand(load dial.Loader) *cobra.Command {
	c := assigning{to: dial.ToAdmin(load)}
	cmd := &cobra.Command{
		Use:   "assign --domain D KEY=VALUE[,KEY=VALUE]... {--plan P | --limit N | --starts S | --time-zone Z | --unlimited}...",
		Short: "Give customers a plan, numbers of their own, a billing day, or no limit",
		Long: `Gives a customer, such as tenant=acme, a plan, numbers of its own, a billing day
or no limit. A plan is for all descriptors that begin with these entries; the
rest is for the descriptor of exactly these entries. These are separate parts,
and those that are not named stay. In force is --unlimited, or else the numbers
of each limit, and the plan for the others. With --only no other parts are left,
except a block and what has an end. What no rule has is refused, and so is what
would have no effect for anyone, unless --force.

With --until or --for it is temporary: it lies on top of what has no end, such
as a contract, which is in force again afterwards. The same again, not for a
shorter time, takes its place. unassign --temporary ends it early.

--starts and --time-zone together are one part: they say where the windows of
the rule's limits by calendar begin, in place of the limits file. What was used
counts until the next of these beginnings. --starts is for the limits whose
windows may begin so: 15 for those by the month.

With --from it does so for each row of a file of CSV or of JSON lines, or of
standard input (-), as written by assignments --export. A CSV header names the
columns: domain, entries, plan, limits, starts, time_zone, unlimited, blocked,
until and reason. A row without until says what has no end: a part without a
column stays, and an empty cell removes it, except a block. Below it each row
with until is put on top of it. A line of JSON is a whole assignment, except a
block. What has an end and is not in the file stays. A wrong row is named with
its line and leaves out its customer; all others are made, and the exit code is
1. Rows that are already in force stay as they are, so repeating it does no
harm. Rows that would have no effect for anyone are made all the same: the first
are named, all are counted, and they do not change the exit code.
` + inForce,
		Example: `  ratelimitd assign --domain api tenant=acme --plan pro \
    --reason "contract 4711"
  ratelimitd assign --domain api tenant=acme --limit month=6000000 --for 2h
  ratelimitd assign --domain api tenant=acme --starts 15 \
    --time-zone Europe/Berlin
  ratelimitd assign --domain api tenant=monitoring --unlimited --only
  ratelimitd assign --from customers.csv --dry-run`,
		ValidArgsFunction: dial.CompleteEntries(load),
	}
	c.bind(cmd, load)
	cmd.RunE = c.run
	return cmd
}

// bind defines the flags.
func (c *assigning) bind(cmd *cobra.Command, load dial.Loader) {
	fs := cmd.Flags()
	fs.StringVar(&c.given.Domain, "domain", "", "domain of the limits; with --from, of rows that name none")
	cmdline.Complete(cmd, "domain", dial.CompleteDomain(load))
	fs.StringVar(&c.given.Plan, "plan", "", "the plan")
	fs.Var(assigntext.NumbersValue(&c.given.Numbers), "limit", "numbers in place of those of a limit, "+assigntext.AllowedNumbers+"; may come several times")
	fs.StringVar(&c.calendar.Starts, "starts", "", "where windows by calendar begin: "+bucket.AllowedStarts(bucket.NoCalendar))
	fs.StringVar(&c.calendar.TimeZone, "time-zone", "", "time zone of windows by calendar, such as Europe/Berlin")
	cmdline.Complete(cmd, "time-zone", cobra.FixedCompletions(zone.Names(), cobra.ShellCompDirectiveNoFileComp))
	fs.BoolVar(&c.given.Unlimited, "unlimited", false, "no limit")
	fs.BoolVar(&c.only, "only", false, "remove everything not named, except a block and what has an end")
	bindEnd(cmd, &c.ends)
	bindReason(cmd, &c.given.Reason)
	bindForce(fs, &c.force, "do it even if it would change no decision")
	fs.StringVar(&c.rows.path, "from", "", "file of assignments, or - for standard input")
	fs.BoolVar(&c.rows.dryRun, "dry-run", false, "say what would change, and change nothing")
	cmdline.BindJSON(fs, &c.asJSON, "each change, or with --from the summary,")
	c.to.Bind(fs)
	for _, alone := range []string{"plan", "limit", "starts", "time-zone", "unlimited", "only", "until", "for", "reason", "force"} {
		cmd.MarkFlagsMutuallyExclusive("from", alone)
	}
}

func (c *assigning) run(cmd *cobra.Command, args []string) error {
	if c.rows.path != "" {
		c.rows.domain, c.rows.asJSON = c.given.Domain, c.asJSON
		if len(args) > 0 {
			return fmt.Errorf("found the argument %q beside --from; allowed: one of the two", args[0])
		}
		return c.to.WithAdmin(func(a dial.Admin) error { return c.rows.run(cmd, a) })
	}
	if c.calendar.Starts != "" || c.calendar.TimeZone != "" {
		c.given.Calendar = &c.calendar
	}
	names := c.given.Plan != "" || c.given.Numbers != nil || c.given.Calendar != nil || c.given.Unlimited
	switch {
	case c.given.Domain == "":
		return cmdline.NeedsFlag(cmd, "domain")
	case !names && len(args) > 0:
		return errors.New("found none of --plan, --limit, --starts, --time-zone and --unlimited; allowed: one or more of them")
	}
	send := sendPatches
	if c.only {
		send = sendPuts
		if c.ends != (end{}) {
			return errors.New("found --only with an end; allowed: one of the two, since what has an end lies on top and removes nothing")
		}
	}
	how := asking{dryRun: c.rows.dryRun, strict: !c.force}
	return setAll(cmd, &c.to, setting{given: &c.given, ends: c.ends, args: args, how: how, asJSON: c.asJSON, send: send})
}
