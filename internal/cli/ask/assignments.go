package ask

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// exportFormat is the format of an export.
func exportFormat(to *string) cmdline.Value {
	return cmdline.Value{Kind: "format", May: "csv or jsonl", Read: func(text string) error {
		if text != "csv" && text != "jsonl" {
			return cmdline.ErrNotAllowed
		}
		*to = text
		return nil
	}}
}

// AssignmentsCommand lists assignments, and exports them.
func AssignmentsCommand(load dial.Loader) *cobra.Command {
	to := dial.ToAdmin(load)
	var request adminv1.ListAssignmentsRequest
	format, snapshot, asJSON := "", "", false
	cmd := &cobra.Command{
		Use:   "assignments",
		Short: "List who has what assigned",
		Long: `Lists assignments, by domain and entries. --export writes what assign --from
reads. --snapshot reads a daemon's file of assignments.cache_path, and asks no
daemon, which is how to move assignments from one Redis to another.`,
		Example: `  ratelimitd assignments --domain api --plan pro
  ratelimitd assignments --blocked
  ratelimitd assignments --export csv > customers.csv
  ratelimitd assignments --export csv --snapshot cache |
    ratelimitd assign --from -`,
		Args: cmdline.NoArguments,
	}
	fs := cmd.Flags()
	fs.StringVar(&request.Domain, "domain", "", "only those of this domain")
	cmdline.Complete(cmd, "domain", dial.CompleteDomain(load))
	fs.StringVar(&request.Prefix, "prefix", "", `only those whose entries begin so, such as tenant=ac; further entries follow after " / "`)
	fs.StringVar(&request.Plan, "plan", "", "only those with this plan")
	fs.BoolVar(&request.Blocked, "blocked", false, "only those that block")
	fs.Var(exportFormat(&format), "export", "write them as csv or jsonl, for assign --from")
	cmdline.Complete(cmd, "export", cobra.FixedCompletions([]string{"csv", "jsonl"}, cobra.ShellCompDirectiveNoFileComp))
	fs.StringVar(&snapshot, "snapshot", "", "list those of this snapshot, in place of a daemon's")
	cmdline.BindJSON(fs, &asJSON, "each assignment")
	to.Bind(fs)
	cmd.MarkFlagsMutuallyExclusive("export", "json")
	cmd.MarkFlagsMutuallyExclusive("snapshot", "admin-address")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		write := listWriter(cmd.OutOrStdout(), format, asJSON)
		request.Prefix = spelling.Unescape(request.GetPrefix())
		if snapshot != "" {
			api, err := snapshotAPI(snapshot, cmd.ErrOrStderr())
			if err != nil {
				return fmt.Errorf("--snapshot: %s: %w", snapshot, err)
			}
			return dial.EachPage(cmd.Context(), dial.Of(api, &to), &request, write)
		}
		return to.WithAdmin(func(a dial.Admin) error {
			if err := dial.EachPage(cmd.Context(), a, &request, write); err != nil {
				return err
			}
			dial.WarnOfUnknownDomain(cmd, a, request.GetDomain())
			return nil
		})
	}
	return cmd
}

// listWriter writes pages of assignments in a format.
func listWriter(out io.Writer, format string, asJSON bool) func(page []*adminv1.Assignment, first bool) error {
	return func(page []*adminv1.Assignment, first bool) error {
		switch {
		case format == "csv":
			return assigntext.WriteCSV(out, page, first)
		case format == "jsonl":
			return assigntext.WriteLines(out, page)
		case asJSON:
			for _, a := range page {
				if err := cmdline.WriteMessage(out, a); err != nil {
					return err
				}
			}
			return nil
		}
		return writeAssignments(out, page, first)
	}
}

func writeAssignments(out io.Writer, page []*adminv1.Assignment, first bool) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	switch {
	case first && len(page) == 0:
		fmt.Fprintln(w, "nothing is assigned")
	case first:
		fmt.Fprintln(w, "DOMAIN\tENTRIES\tBY\tAT\tASSIGNED")
	}
	now := time.Now()
	for _, a := range page {
		by, at := lastChange(a)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", yamlfile.Printable(a.GetDomain()), assigntext.EntriesWord(a.GetEntries()),
			cmp.Or(spelling.Visible(by), "-"), assigntext.MomentText(at), spelling.Visible(assigntext.Describe(a, now)))
	}
	return w.Flush()
}

// lastChange returns who changed an assignment last, and when: its base, or a layer.
func lastChange(a *adminv1.Assignment) (by string, at *timestamppb.Timestamp) {
	by, at = a.GetMadeBy(), a.MadeAt
	for _, t := range a.GetTemporary() {
		if t.GetMadeAt().AsTime().After(at.AsTime()) {
			by, at = t.GetMadeBy(), t.MadeAt
		}
	}
	return by, at
}
