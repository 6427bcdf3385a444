package steer

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

func undoCommand(load dial.Loader) *cobra.Command {
	to := dial.ToAdmin(load)
	var request adminv1.UndoAssignmentRequest
	asJSON := false
	cmd := &cobra.Command{
		Use:   "undo --domain D KEY=VALUE[,KEY=VALUE]...",
		Short: "Take back the last change of what is assigned to a customer",
		Long: `Takes back the last assign, unassign, block or unblock of a customer, such as
tenant=acme: what was assigned before is assigned again, except for what would
have ended since. A second undo takes back the first. A reset cannot be undone.
` + inForce,
		Example: `  ratelimitd undo --domain api tenant=acme --dry-run
  ratelimitd undo --domain api tenant=acme --reason "wrong customer"`,
		Args:              cmdline.AtLeastOne(assigntext.SubjectArgument),
		ValidArgsFunction: dial.CompleteEntries(load),
	}
	dial.BindDomain(cmd, &request.Domain, load)
	bindReason(cmd, &request.Reason)
	cmd.Flags().BoolVar(&request.DryRun, "dry-run", false, "say what would change, and change nothing")
	cmdline.BindJSON(cmd.Flags(), &asJSON, "each change, with the record of what it undoes,")
	to.Bind(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p := changes{out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), asJSON: asJSON, how: asking{dryRun: request.GetDryRun()}}
		err := to.EachSubject(args, func(a dial.Admin, entries []*ratelimitv1.Entry) error {
			request.Entries = entries
			r, err := dial.Call(cmd.Context(), a, a.UndoAssignment, &request)
			if refused := (dial.CallError{}); status.Code(err) == codes.FailedPrecondition && errors.As(err, &refused) {
				return p.print(request.GetDomain(), entries, &adminv1.AssignmentChange{Outcome: adminv1.ChangeOutcome_CHANGE_OUTCOME_REFUSED, Error: refused.Message()})
			} else if err != nil {
				return err
			}
			if asJSON {
				p.failed = p.failed || !succeeded(r.GetChange().GetOutcome())
				return cmdline.WriteMessage(p.out, r)
			}
			if err := p.print(request.GetDomain(), entries, r.GetChange()); err != nil || !succeeded(r.GetChange().GetOutcome()) {
				return err
			}
			done := "undone: "
			if r.GetChange().GetOutcome() == adminv1.ChangeOutcome_CHANGE_OUTCOME_UNCHANGED {
				done = "already over: "
			}
			return p.printMore(done + undoneText(r.GetUndone()))
		})
		if err != nil {
			return err
		}
		return p.end()
	}
	return cmd
}

// undoneText says which change was taken back.
func undoneText(r *adminv1.AuditRecord) string {
	text := fmt.Sprintf("the change by %s, %s", r.GetMadeBy(), assigntext.ShortMoment(r.GetTime().AsTime(), time.Now()))
	if r.GetReason() != "" {
		text += ", " + assigntext.ReasonText(r.GetReason())
	}
	return text
}
