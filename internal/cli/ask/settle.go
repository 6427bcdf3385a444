package ask

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

type settlement struct {
	caller
	id   string
	cost int64
}

// SettleCommand says what a request that reserved has used. It asks the daemon with the
// settings that load returns, or the one that its flags name.
func SettleCommand(load dial.Loader) *cobra.Command {
	s := settlement{caller: newCaller(load)}
	cmd := &cobra.Command{
		Use:   "settle --domain D --id ID --cost USED KEY=VALUE[,KEY=VALUE]...",
		Short: "Say what a request that was named has used",
		Long: `Makes what requests with this id have charged the cost that was used: less goes
back as far as it still counts, more is charged in full, 0 gives all back. The
arguments are the descriptors of the request (take --id) that it is said of.

The last settlement counts, so it may be repeated. Exits with 1 if nothing was
settled of a descriptor, since nothing is known of the id there: nothing was
taken with it, or it was denied or given back, or it was too long ago.`,
		Example: `  ratelimitd settle --domain llm --id req-1 --cost 812 user=alice
  ratelimitd settle --domain llm --id req-1 --cost 0 user=alice`,
		Args:              cmdline.AtLeastOne("a descriptor of the request, such as user=alice"),
		ValidArgsFunction: dial.CompleteEntries(load),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.program = cmd.Root().Name()
			return s.run(cmd.Context(), cmd.OutOrStdout(), args)
		},
	}
	s.bind(cmd, load, "the answer")
	bindID(cmd.Flags(), &s.id, "that of the request (required)")
	cost := cmdline.Number(&s.cost, 0, bucket.MaxRequests)
	cost.Default = "" // what was used has none
	cmd.Flags().Var(cost, "cost", "what was used of each descriptor's limits (required)")
	for _, name := range []string{"id", "cost"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // the flags are defined above
		}
	}
	return cmd
}

func (s *settlement) run(ctx context.Context, out io.Writer, args []string) error {
	take, err := assigntext.ParseTake(s.domain, args)
	if err != nil {
		return err
	}
	for _, d := range take.GetDescriptors() {
		d.Cost = new(uint64(s.cost))
	}
	var r *ratelimitv1.SettleResponse
	err = s.ask(ctx, func(ctx context.Context, client ratelimitv1.RateLimitServiceClient) (err error) {
		r, err = client.Settle(ctx, &ratelimitv1.SettleRequest{Domain: s.domain, Id: s.id, Descriptors: take.GetDescriptors()})
		return err
	})
	if err != nil {
		return err
	}
	if s.json {
		if err := cmdline.WriteMessage(out, r); err != nil {
			return err
		}
		out = io.Discard // for the exit code
	}
	args = visibleArgs(args, take)
	var rows []row
	for _, l := range r.GetLimits() {
		rows = append(rows, settledRow(l))
	}
	isDone, err := writeRows(out, args, rows, row{result: "unknown", text: "no limit applies; nothing has changed"})
	if err == nil && r.GetDegraded() {
		_, err = fmt.Fprintln(out, "DEGRADED settled without the store, at least in part")
	}
	if err != nil || isDone {
		return err
	}
	if err := s.writeWhy(out, "inspect", append([]string{s.domain, "--id", s.id}, args...)); err != nil {
		return err
	}
	return errUnchanged
}

// settledRow says what a settlement did to a limit.
func settledRow(l *ratelimitv1.SettledLimit) row {
	if !l.GetSettled() {
		return row{
			descriptor: l.GetDescriptorIndex(), result: "unknown",
			text: named(l.GetName(), "nothing is known of this id; nothing has changed"),
		}
	}
	var text strings.Builder
	switch {
	case l.GetReturned() > 0:
		fmt.Fprintf(&text, "%s went back", words.Thousands(int64(l.GetReturned())))
	case l.GetAdded() > 0:
		fmt.Fprintf(&text, "%s charged beyond what was taken", words.Thousands(int64(l.GetAdded())))
	default:
		text.WriteString("nothing went back, and nothing more was charged")
	}
	fmt.Fprintf(&text, "; %s left", words.Thousands(int64(l.GetRemaining())))
	if reset := l.GetResetAfter().AsDuration(); reset > 0 {
		text.WriteString("; full again in " + timespan.Format(reset))
	}
	if l.GetTakes() > 1 {
		fmt.Fprintf(&text, "; %s have this id", takesText(l.GetTakes()))
	}
	return row{descriptor: l.GetDescriptorIndex(), result: "settled", text: named(l.GetName(), text.String()), isDone: true}
}
