package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/server/adminapi"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
	"github.com/ratelimitd/ratelimitd/internal/top"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// redrawEvery is how often --watch asks again.
const redrawEvery = 2 * time.Second

// topCommand asks a daemon, and by it all that share its store, who had the most.
func topCommand(load func() (settings.Settings, error)) *cobra.Command {
	to := adminTarget(load)
	window, by, rows, watch, asJSON := top.Minute.String(), top.Denied.String(), int64(20), false, false
	cmd := &cobra.Command{
		Use:   "top [DOMAIN [RULE]]",
		Short: "Show who was denied most, or used most",
		Long: `Shows the subjects that were denied most, or that used most, at all rules, at
those of a domain, or at one rule, such as "user=alice / route"; of all daemons
that share the store. A count may be too high, by ERROR at most. docs/top.md
says how it is counted.

Exits with 4 if not every daemon answered.`,
		Example: `  ratelimitd top
  ratelimitd top api tenant --window 1h
  ratelimitd top api --by used --watch`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: completeFirst(completeDomain(load)),
	}
	fs := cmd.Flags()
	bindWord(cmd, &window, []string{top.Minute.String(), top.Quarter.String(), top.Hour.String()}, "window", "span of time that ends now: 1m, 15m or 1h")
	bindWord(cmd, &by, []string{top.Denied.String(), top.Used.String()}, "by", "what is added up: denied, or used (with the setting top.subjects: all)")
	fs.Var(numberFlag{&rows, 1, top.MaxRows}, "rows", "how many subjects")
	fs.BoolVar(&watch, "watch", false, "show it again every 2 s; on a terminal in place, until q")
	bindJSON(fs, &asJSON, "each answer")
	to.bind(fs)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		request := &adminv1.TopRequest{Rows: uint32(rows), By: adminapi.TopBys[by], Window: adminapi.TopWindows[window]}
		if len(args) > 0 {
			request.Domain = args[0]
		}
		if len(args) > 1 {
			request.Rule = args[1]
		}
		return to.withAdmin(func(a admin) error {
			out := cmd.OutOrStdout()
			shown := func(to screen) func(context.Context, string) error {
				return func(ctx context.Context, before string) error {
					to.width = tableColumns(out) // the terminal may have another size by now
					return showTop(ctx, to, a, request, by, window, asJSON, before)
				}
			}
			if !watch {
				return shown(screen{out: out, err: cmd.ErrOrStderr()})(cmd.Context(), "")
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
			defer stop()
			return untilKey(ctx, cmd.InOrStdin(), screen{out: out, err: cmd.ErrOrStderr()}, func(ctx context.Context, to screen) error {
				return again(ctx, redrawEvery, betweenAnswers(out, asJSON), shown(to))
			})
		})
	}
	return cmd
}

// completeFirst completes the first argument, and no other.
func completeFirst(with completion) completion {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return with(cmd, args, toComplete)
	}
}

// betweenAnswers returns what parts answers: an empty screen, an empty line, or, of
// lines of JSON, nothing.
func betweenAnswers(out io.Writer, asJSON bool) string {
	switch {
	case asJSON:
		return ""
	case isTerminal(out):
		return "\x1b[H\x1b[2J"
	}
	return "\n"
}

// again shows something until ctx ends, or until it fails. That not all daemons
// answered is no failure then. What show prints begins with the text that it is given,
// so that a screen is empty no longer than it takes to write on it.
func again(ctx context.Context, every time.Duration, between string, show func(ctx context.Context, before string) error) error {
	for before := ""; ; before = between {
		err := show(ctx, before)
		var code exitCode
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !errors.As(err, &code) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

// showTop asks once, and prints the answer in one piece, with a text before it.
func showTop(ctx context.Context, to screen, a admin, request *adminv1.TopRequest, by, window string, asJSON bool, before string) error {
	r, err := call(ctx, a, a.Top, request)
	if err != nil {
		return err
	}
	out := bytes.NewBufferString(before)
	if asJSON {
		err = printMessage(out, r)
	} else {
		var table io.Writer = out
		if to.width > 0 {
			table = &tableWriter{to: out, width: to.width}
		}
		err = printTop(table, r, by, window)
		out.WriteString(to.hint)
	}
	if err != nil {
		return err
	}
	if _, err := to.out.Write(out.Bytes()); err != nil {
		return err
	}
	if isWhole := tellMissing(to.err, r); !isWhole {
		return exitCode(exitPending)
	}
	return nil
}

func printTop(out io.Writer, r *adminv1.TopResponse, by, window string) error {
	// So that two answers differ only where something else was counted.
	covered := r.GetCovered().AsDuration().Truncate(time.Second)
	fmt.Fprintf(out, "%s in the last %s (%s of it so far), by %s: %d in all\n",
		by, window, timespan.Format(covered), yamlfile.Plural(int64(r.GetDaemons()), "daemon"), r.GetTotal())
	if len(r.GetSubjects()) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "COUNT\tERROR\tSHARE\tDOMAIN\tRULE\tSUBJECT")
	for _, s := range r.GetSubjects() {
		subject := subjectWord(s.GetEntries())
		if s.GetCut() {
			subject += "..."
		}
		fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%s\t%s\n", s.GetCount(), s.GetError(), share(s.GetCount(), r.GetTotal()), spelling.ShellWord(s.GetDomain()), spelling.Visible(s.GetRule()), subject)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "nobody else had more than %d\n", r.GetOthersAtMost())
	return err
}

// share is a part of a whole as people read it.
func share(part, whole uint64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", math.Min(100, 100*float64(part)/float64(whole)))
}

// tellMissing says what an answer lacks, and reports whether it lacks nothing.
func tellMissing(to io.Writer, r *adminv1.TopResponse) bool {
	if r.GetOthersUnknown() != "" {
		fmt.Fprintln(to, "other daemons are not in it:", spelling.Visible(r.GetOthersUnknown()))
	}
	if len(r.GetPending()) > 0 {
		var names []string
		for _, d := range r.GetPending() {
			names = append(names, spelling.Visible(orElse(d.GetAddress(), d.GetId())))
		}
		fmt.Fprintf(to, "what these counted is not in it, since they did not answer: %s\n", strings.Join(names, ", "))
	}
	return r.GetOthersUnknown() == "" && len(r.GetPending()) == 0
}
