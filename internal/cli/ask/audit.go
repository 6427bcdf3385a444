package ask

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// auditQuery is a command line of audit.
type auditQuery struct {
	to     dial.Target
	domain string
	max    int64
	asJSON bool
}

// AuditCommand shows who changed what.
func AuditCommand(load dial.Loader) *cobra.Command {
	q := auditQuery{to: dial.ToAdmin(load), max: 100}
	cmd := &cobra.Command{
		Use:   "audit [--domain D [KEY=VALUE[,KEY=VALUE]...]]",
		Short: "Show who changed what",
		Long: `Shows who changed what and why, the newest first: in all domains, in one, or of
one customer, such as tenant=acme.`,
		Example: `  ratelimitd audit
  ratelimitd audit --domain api tenant=acme`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: dial.CompleteEntries(load),
	}
	cmd.Flags().StringVar(&q.domain, "domain", "", "only changes of this domain")
	cmdline.Complete(cmd, "domain", dial.CompleteDomain(load))
	cmd.Flags().VarP(cmdline.Number(&q.max, 1, math.MaxInt32), "limit", "n", "how many at most")
	cmdline.BindJSON(cmd.Flags(), &q.asJSON, "each change")
	q.to.Bind(cmd.Flags())
	cmd.RunE = q.run
	return cmd
}

func (q *auditQuery) run(cmd *cobra.Command, args []string) error {
	request := &adminv1.ListAuditRequest{Domain: q.domain}
	if len(args) > 0 {
		if q.domain == "" {
			return fmt.Errorf("found %q without --domain; allowed: both", args[0])
		}
		var err error
		if request.Entries, err = assigntext.ParseEntries(args[0]); err != nil {
			return err
		}
	}
	return q.to.WithAdmin(func(a dial.Admin) error {
		shown, err := q.show(cmd, a, request)
		if err != nil || shown > 0 || q.asJSON {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "nothing was changed")
		dial.WarnOfUnknownDomain(cmd, a, q.domain)
		return err
	})
}

// show prints records, page by page, and returns their number.
func (q *auditQuery) show(cmd *cobra.Command, a dial.Admin, request *adminv1.ListAuditRequest) (shown int64, _ error) {
	const maxPage = 1000
	for {
		request.PageSize = uint32(min(q.max-shown, maxPage))
		r, err := dial.Call(cmd.Context(), a, a.ListAudit, request)
		if err != nil {
			return shown, err
		}
		for _, record := range r.GetRecords() {
			if shown == q.max {
				return shown, nil
			}
			if err := printRecord(cmd.OutOrStdout(), record, q.asJSON); err != nil {
				return shown, err
			}
			shown++
		}
		if request.PageToken = r.GetNextPageToken(); request.PageToken == "" || shown == q.max {
			return shown, nil
		}
	}
}

func printRecord(out io.Writer, r *adminv1.AuditRecord, asJSON bool) error {
	if asJSON {
		return cmdline.WriteMessage(out, r)
	}
	_, err := fmt.Fprintf(out, "%s  %s  %s\n", assigntext.MomentText(r.GetTime()), cmp.Or(spelling.Visible(r.GetMadeBy()), "-"), spelling.Visible(recordText(r)))
	return err
}

// recordText describes what was changed.
func recordText(r *adminv1.AuditRecord) string {
	if r.GetKind() == adminv1.AuditKind_AUDIT_KIND_RESTORED {
		return fmt.Sprintf("restored %d of the assignments that Redis had lost", r.GetRestored())
	}
	at := r.GetTime().AsTime().Local()
	text := assigntext.SubjectText(r.GetDomain(), r.GetEntries()) + ": "
	switch r.GetKind() {
	case adminv1.AuditKind_AUDIT_KIND_RESET:
		text += "reset " + assigntext.LimitNames(r.GetLimits())
	case adminv1.AuditKind_AUDIT_KIND_RESET_FAILED:
		text += "reset, not completed: " + assigntext.LimitNames(r.GetLimits())
	default:
		if r.GetUndoes() != "" {
			text += "undo: "
		}
		text += assigntext.Describe(r.GetAfter(), at)
	}
	if reason := assigntext.ReasonText(r.GetReason()); r.GetReason() != "" && !strings.Contains(text, ", "+reason) {
		text += "; reason: " + reason
	}
	if r.GetBefore() != nil {
		text += "; before: " + assigntext.Describe(r.GetBefore(), at)
	}
	return text
}
