package ask

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// ReleaseCommand frees the slots of holders. It asks the daemon with the settings that
// load returns, or the one that its flags name.
func ReleaseCommand(load dial.Loader) *cobra.Command {
	c := newCaller(load)
	cmd := &cobra.Command{
		Use:   "release --domain D KEY=VALUE,KEY=HOLDER...",
		Short: "Free the slot of a request in flight",
		Long: `Frees the slots that holders have in limits of requests in flight (algorithm:
concurrency), as a caller does whose work is done. Each argument is a descriptor
whose last entry names the holder; inspect lists those who hold, and reset frees
all at once.

It may come twice. Exits with 1 if a holder had no slot, or had lost it before,
since its hold ended.`,
		Example: `  ratelimitd release --domain api tenant=acme,request_id=1f0f0e5c
  ratelimitd release --domain batch worker=pool,job=17 worker=pool,job=18`,
		Args:              cmdline.AtLeastOne("a descriptor whose last entry names a holder, such as worker=pool,job=job-17"),
		ValidArgsFunction: dial.CompleteEntries(load),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.release(cmd.Context(), cmd.OutOrStdout(), args)
		},
	}
	c.bind(cmd, load, "the answer")
	return cmd
}

func (c *caller) release(ctx context.Context, out io.Writer, args []string) error {
	take, err := assigntext.ParseTake(c.domain, args)
	if err != nil {
		return err
	}
	var r *ratelimitv1.ReleaseResponse
	err = c.ask(ctx, func(ctx context.Context, client ratelimitv1.RateLimitServiceClient) (err error) {
		r, err = client.Release(ctx, &ratelimitv1.ReleaseRequest{Domain: c.domain, Descriptors: take.GetDescriptors()})
		return err
	})
	if err != nil {
		return err
	}
	if c.json {
		if err := cmdline.WriteMessage(out, r); err != nil {
			return err
		}
		out = io.Discard // for the exit code
	}
	var rows []row
	for _, l := range r.GetLimits() {
		rows = append(rows, releasedRow(l))
	}
	isDone, err := writeRows(out, visibleArgs(args, take), rows, row{result: "nothing", text: "no limit of requests in flight applies"})
	if err == nil && r.GetDegraded() {
		_, err = fmt.Fprintln(out, "DEGRADED released without the store, at least in part")
	}
	if err == nil && !isDone {
		err = errUnchanged
	}
	return err
}

// releasedRow says what a release found in a limit.
func releasedRow(l *ratelimitv1.ReleasedLimit) row {
	r := row{descriptor: l.GetDescriptorIndex(), result: "nothing"}
	text := "it held no slot; "
	switch l.GetReleased() {
	case ratelimitv1.Released_RELEASED_SLOT:
		r.result, r.isDone, text = "released", true, ""
	case ratelimitv1.Released_RELEASED_TOO_LATE:
		r.result, text = "too late", "its slot had lapsed before, when its hold ended; "
	}
	r.text = named(l.GetName(), fmt.Sprintf("%s%s left", text, words.Thousands(int64(l.GetRemaining()))))
	return r
}
