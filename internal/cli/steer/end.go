package steer

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/period"
)

// end is when something ends automatically, from --until or --for.
type end struct {
	until time.Time
	span  time.Duration
}

// moment returns the end, or nil if there is none.
func (e *end) moment(now time.Time) (*timestamppb.Timestamp, error) {
	switch {
	case e.span > 0:
		return timestamppb.New(now.Add(e.span).Truncate(time.Second)), nil
	case e.until.IsZero():
		return nil, nil
	case !e.until.After(now):
		return nil, fmt.Errorf("flag --until: found %s, which is over; allowed: a moment to come", assigntext.EndText(e.until, e.until.Location()))
	}
	return timestamppb.New(e.until), nil
}

// readUntil reads a point in time.
func (e *end) readUntil(text string) (err error) {
	if e.until, err = assigntext.ParseEnd(text, time.Now()); err != nil {
		return cmdline.ValueError{Err: err}
	}
	return nil
}

// readSpan reads a span of time starting now.
func (e *end) readSpan(text string) (err error) {
	if e.span, err = period.Parse(text); err != nil {
		return cmdline.ValueError{Err: fmt.Errorf("found %w; allowed: %s", err, period.Allowed)}
	}
	return nil
}

// bindEnd defines the flags that say when something ends.
func bindEnd(cmd *cobra.Command, to *end) {
	cmd.Flags().Var(cmdline.Value{Kind: "moment", May: assigntext.AllowedEnd, Read: to.readUntil}, "until", "when it ends by itself: "+assigntext.AllowedEnd)
	cmd.Flags().Var(cmdline.Value{Kind: "span", May: period.Allowed, Read: to.readSpan}, "for", "how long it holds, such as 15m, 24h or 30d")
	cmd.MarkFlagsMutuallyExclusive("until", "for")
	cmdline.Complete(cmd, "until", cobra.NoFileCompletions)
	cmdline.Complete(cmd, "for", cobra.NoFileCompletions)
}
