package steer

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// setting is what assign and block set, the same for several subjects.
type setting struct {
	given  *adminv1.Assignment // without entries or an end
	ends   end
	args   []string
	how    asking
	asJSON bool
	send   sender
}

func setAll(cmd *cobra.Command, to *dial.Target, p setting) error {
	if err := cmdline.AtLeastOne(assigntext.SubjectArgument)(cmd, p.args); err != nil {
		return err
	}
	until, err := p.ends.moment(time.Now())
	if err != nil {
		return err
	}
	patches, err := patchesOf(p.args, func(entries []*ratelimitv1.Entry) *adminv1.AssignmentPatch {
		return &adminv1.AssignmentPatch{Assignment: &adminv1.Assignment{
			Domain: p.given.Domain, Entries: entries, Plan: p.given.Plan, Numbers: p.given.Numbers, Calendar: p.given.Calendar,
			Unlimited: p.given.Unlimited, Blocked: p.given.Blocked, Reason: p.given.Reason, Until: until,
		}}
	})
	if err != nil {
		return err
	}
	return to.WithAdmin(func(a dial.Admin) error {
		printed := changes{out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), asJSON: p.asJSON, how: p.how}
		return printed.change(cmd.Context(), a, patches, p.send)
	})
}
