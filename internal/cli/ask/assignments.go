package ask

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

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
	cmdline.Complete(cmd, "plan", dial.CompletePlan(load))
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
	var widths [4]int // of the columns; each page may widen them
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
		return writeAssignments(out, page, first, &widths)
	}
}

func writeAssignments(out io.Writer, page []*adminv1.Assignment, first bool, widths *[4]int) error {
	if len(page) == 0 {
		if !first {
			return nil
		}
		_, err := fmt.Fprintln(out, "nothing is assigned")
		return err
	}
	var rows [][5]string
	if first {
		rows = append(rows, [5]string{"DOMAIN", "ENTRIES", "BY", "AT", "ASSIGNED"})
	}
	now := time.Now()
	for _, a := range page {
		by, at := lastChange(a)
		rows = append(rows, [5]string{
			yamlfile.Printable(a.GetDomain()), assigntext.EntriesWord(a.GetEntries()), cmp.Or(spelling.Visible(by), "-"),
			assigntext.MomentText(at), spelling.Visible(assigntext.Describe(a, now)),
		})
	}
	for _, row := range rows {
		for i := range widths {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	w := bufio.NewWriter(out)
	for _, row := range rows {
		for i, width := range widths {
			fmt.Fprintf(w, "%-*s  ", width, row[i])
		}
		fmt.Fprintln(w, row[len(widths)])
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
