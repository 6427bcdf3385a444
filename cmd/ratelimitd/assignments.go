package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// exportFlag is the format of an export.
type exportFlag struct{ to *string }

func (f exportFlag) String() string  { return *f.to }
func (f exportFlag) Type() string    { return "format" }
func (f exportFlag) allowed() string { return "csv or jsonl" }

func (f exportFlag) Set(text string) error {
	if text != "csv" && text != "jsonl" {
		return errors.New("not " + f.allowed())
	}
	*f.to = text
	return nil
}

func assignmentsCommand(load func() (settings.Settings, error)) *cobra.Command {
	to := adminTarget(load)
	request := adminv1.ListAssignmentsRequest{PageSize: mostPuts}
	format, snapshot, asJSON := "", "", false
	cmd := &cobra.Command{
		Use:   "assignments",
		Short: "List who has what assigned",
		Long: `Lists assignments, by domain and entries. --export writes what assign --from
reads. --snapshot reads a daemon's file of assignments.cache_path, and asks no
daemon: it is how the assignments of one Redis get into another.`,
		Example: `  ratelimitd assignments --domain api --plan pro
  ratelimitd assignments --blocked
  ratelimitd assignments --export csv > customers.csv
  ratelimitd assignments --export csv --snapshot cache | ratelimitd assign --from -`,
		Args: noArguments,
	}
	fs := cmd.Flags()
	fs.StringVar(&request.Domain, "domain", "", "only those of this domain")
	completeFlag(cmd, "domain", completeDomain(load))
	fs.StringVar(&request.Prefix, "prefix", "", `only those whose entries begin so, such as tenant=ac; further entries follow after " / "`)
	fs.StringVar(&request.Plan, "plan", "", "only those with this plan")
	completeFlag(cmd, "plan", completePlan(load))
	fs.BoolVar(&request.Blocked, "blocked", false, "only those that block")
	fs.Var(exportFlag{&format}, "export", "write them as csv or jsonl, for assign --from")
	completeFlag(cmd, "export", cobra.FixedCompletions([]string{"csv", "jsonl"}, cobra.ShellCompDirectiveNoFileComp))
	fs.StringVar(&snapshot, "snapshot", "", "list those of this snapshot, in place of a daemon's")
	bindJSON(fs, &asJSON, "each assignment")
	to.bind(fs)
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
			return eachPage(cmd.Context(), admin{AdminServiceClient: api, to: &to}, &request, write)
		}
		return to.withAdmin(func(a admin) error {
			if err := eachPage(cmd.Context(), a, &request, write); err != nil {
				return err
			}
			tellUnknownDomain(cmd, a, request.GetDomain())
			return nil
		})
	}
	return cmd
}

// eachPage hands over all assignments, page by page; once none if there are none.
func eachPage(ctx context.Context, a admin, request *adminv1.ListAssignmentsRequest, write func(page []*adminv1.Assignment, first bool) error) error {
	first := true
	for {
		r, err := call(ctx, a, a.ListAssignments, request)
		if err != nil {
			return err
		}
		request.PageToken = r.GetNextPageToken()
		// Where few of many are chosen, pages before the last may be empty.
		if len(r.GetAssignments()) > 0 || first && request.PageToken == "" {
			if err := write(r.GetAssignments(), first); err != nil {
				return err
			}
			first = false
		}
		if request.PageToken == "" {
			return nil
		}
	}
}

// listWriter writes pages of assignments in a format.
func listWriter(out io.Writer, format string, asJSON bool) func(page []*adminv1.Assignment, first bool) error {
	var widths [4]int // of the columns; each page may widen them
	return func(page []*adminv1.Assignment, first bool) error {
		switch {
		case format == "csv":
			return writeCSV(out, page, first)
		case format == "jsonl":
			return writeLines(out, page, settable)
		case asJSON:
			return writeLines(out, page, func(a *adminv1.Assignment) *adminv1.Assignment { return a })
		}
		return writeAssignments(tableOn(out), page, first, &widths)
	}
}

// settable is an assignment without what the daemon sets.
func settable(a *adminv1.Assignment) *adminv1.Assignment {
	a = proto.CloneOf(a)
	a.MadeBy, a.MadeAt, a.Etag = "", nil, ""
	return a
}

func writeCSV(out io.Writer, page []*adminv1.Assignment, first bool) error {
	w := csv.NewWriter(out)
	if first {
		if err := w.Write(columns); err != nil {
			return err
		}
	}
	for _, a := range page {
		if err := w.Write(csvFields(a)); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

func writeLines(out io.Writer, page []*adminv1.Assignment, of func(*adminv1.Assignment) *adminv1.Assignment) error {
	for _, a := range page {
		if err := printMessage(out, of(a)); err != nil {
			return err
		}
	}
	return nil
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
		rows = append(rows, [5]string{
			yamlfile.Printable(a.GetDomain()), subjectWord(a.GetEntries()), orDash(spelling.Visible(a.GetMadeBy())),
			momentOf(a.GetMadeAt()), spelling.Visible(describeAssignment(a, now)),
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
