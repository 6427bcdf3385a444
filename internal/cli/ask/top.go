package ask

import (
	"bytes"
	"cmp"
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
	"golang.org/x/term"

	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/server/adminapi"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
	"github.com/ratelimitd/ratelimitd/internal/top"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// redrawEvery is how often --watch asks again.
const redrawEvery = 2 * time.Second

// topQuery is a command line of top.
type topQuery struct {
	to            dial.Target
	window, by    string
	rows          int64
	watch, asJSON bool
}

// TopCommand asks a daemon, and through it all that share its store, for the top
// subjects.
func TopCommand(load dial.Loader) *cobra.Command {
	q := topQuery{to: dial.ToAdmin(load), window: top.Minute.String(), by: top.Denied.String(), rows: 20}
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
		ValidArgsFunction: completeFirst(dial.CompleteDomain(load)),
	}
	fs := cmd.Flags()
	cmdline.BindWord(cmd, &q.window, []string{top.Minute.String(), top.Quarter.String(), top.Hour.String()}, "window", "span of time that ends now: 1m, 15m or 1h")
	cmdline.BindWord(cmd, &q.by, []string{top.Denied.String(), top.Used.String()}, "by", "what is added up: denied, or used (with the setting top.subjects: all)")
	fs.VarP(cmdline.Number(&q.rows, 1, top.MaxRows), "limit", "n", "how many subjects")
	fs.BoolVar(&q.watch, "watch", false, "show it again every 2 s; on a terminal in place, until Ctrl-C")
	cmdline.BindJSON(fs, &q.asJSON, "each answer")
	q.to.Bind(fs)
	cmd.RunE = q.run
	return cmd
}

func (q *topQuery) run(cmd *cobra.Command, args []string) error {
	request := &adminv1.TopRequest{Rows: uint32(q.rows), By: adminapi.TopBys[q.by], Window: adminapi.TopWindows[q.window]}
	if len(args) > 0 {
		request.Domain = args[0]
	}
	if len(args) > 1 {
		request.Rule = args[1]
	}
	return q.to.WithAdmin(func(a dial.Admin) error {
		if !q.watch {
			return q.show(cmd.Context(), cmd, a, request, "")
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return again(ctx, redrawEvery, betweenAnswers(cmd.OutOrStdout(), q.asJSON), func(ctx context.Context, before string) error {
			return q.show(ctx, cmd, a, request, before)
		})
	})
}

// completeFirst completes the first argument, and no other.
func completeFirst(with cmdline.Completion) cmdline.Completion {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return with(cmd, args, toComplete)
	}
}

// betweenAnswers returns what separates answers: an empty screen, an empty line, or, for
// lines of JSON, nothing.
func betweenAnswers(out io.Writer, asJSON bool) string {
	if asJSON {
		return ""
	}
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return "\x1b[H\x1b[2J"
	}
	return "\n"
}

// again shows something until ctx ends or it fails. Not all daemons answering is not a
// failure here. What show prints begins with the text passed to it, so that a screen is
// empty no longer than it takes to write on it.
func again(ctx context.Context, every time.Duration, between string, show func(ctx context.Context, before string) error) error {
	for before := ""; ; before = between {
		err := show(ctx, before)
		var code cmdline.ExitCode
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

// show asks once, and prints the answer in one piece, preceded by a text.
func (q *topQuery) show(ctx context.Context, cmd *cobra.Command, a dial.Admin, request *adminv1.TopRequest, before string) error {
	r, err := dial.Call(ctx, a, a.Top, request)
	if err != nil {
		return err
	}
	out := bytes.NewBufferString(before)
	if q.asJSON {
		err = cmdline.WriteMessage(out, r)
	} else {
		err = printTop(out, r, q.by, q.window)
	}
	if err != nil {
		return err
	}
	if _, err := cmd.OutOrStdout().Write(out.Bytes()); err != nil {
		return err
	}
	if isWhole := printMissing(cmd.ErrOrStderr(), r); !isWhole {
		return cmdline.ExitCode(cmdline.ExitPending)
	}
	return nil
}

func printTop(out io.Writer, r *adminv1.TopResponse, by, window string) error {
	// So that two answers differ only if something else was counted.
	covered := r.GetCovered().AsDuration().Truncate(time.Second)
	fmt.Fprintf(out, "%s in the last %s (%s of it so far), by %s: %d in all\n",
		by, window, timespan.Format(covered), yamlfile.Plural(int64(r.GetDaemons()), "daemon"), r.GetTotal())
	if len(r.GetSubjects()) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "COUNT\tERROR\tSHARE\tDOMAIN\tRULE\tSUBJECT")
	for _, s := range r.GetSubjects() {
		subject := assigntext.EntriesWord(s.GetEntries())
		if s.GetCut() {
			subject += "..."
		}
		fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%s\t%s\n", s.GetCount(), s.GetError(), share(s.GetCount(), r.GetTotal()), spelling.ShellWord(s.GetDomain()), spelling.Visible(s.GetRule()), subject)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "no other subject had more than %d\n", r.GetOthersAtMost())
	return err
}

// share formats a part of a whole for people.
func share(part, whole uint64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", math.Min(100, 100*float64(part)/float64(whole)))
}

// printMissing says what an answer lacks, and reports whether it is complete.
func printMissing(to io.Writer, r *adminv1.TopResponse) bool {
	if r.GetOthersUnknown() != "" {
		fmt.Fprintln(to, "other daemons are not in it:", spelling.Visible(r.GetOthersUnknown()))
	}
	if len(r.GetPending()) > 0 {
		var names []string
		for _, d := range r.GetPending() {
			names = append(names, spelling.Visible(cmp.Or(d.GetAddress(), d.GetId())))
		}
		fmt.Fprintf(to, "what these counted is not in it, since they did not answer: %s\n", strings.Join(names, ", "))
	}
	return r.GetOthersUnknown() == "" && len(r.GetPending()) == 0
}
