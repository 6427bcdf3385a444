package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

func auditCommand(load func() (settings.Settings, error)) *cobra.Command {
	to := adminTarget(load)
	domain, asJSON, most := "", false, int64(100)
	cmd := &cobra.Command{
		Use:   "audit [--domain D [KEY=VALUE[,KEY=VALUE]...]]",
		Short: "Show who changed what",
		Long: `Shows who changed what and why, the newest first: in all domains, in one, or of
one customer, such as tenant=acme.`,
		Example: `  ratelimitd audit
  ratelimitd audit --domain api tenant=acme`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeEntries(load),
	}
	cmd.Flags().StringVar(&domain, "domain", "", "only changes of this domain")
	completeFlag(cmd, "domain", completeDomain(load))
	cmd.Flags().Var(numberFlag{&most, 1, math.MaxInt32}, "most", "how many at most")
	bindJSON(cmd.Flags(), &asJSON, "each change")
	to.bind(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		request := &adminv1.ListAuditRequest{Domain: domain}
		if len(args) > 0 {
			if domain == "" {
				return fmt.Errorf("found %q without --domain; allowed: both", args[0])
			}
			var err error
			if request.Entries, err = parseEntries(args[0]); err != nil {
				return err
			}
		}
		return to.withAdmin(func(a admin) error {
			out, left := cmd.OutOrStdout(), most
			for {
				request.PageSize = uint32(min(left, 1000))
				r, err := call(cmd.Context(), a, a.ListAudit, request)
				if err != nil {
					return err
				}
				for _, record := range r.GetRecords() {
					if left--; left < 0 {
						return nil
					}
					if err := printRecord(out, record, asJSON); err != nil {
						return err
					}
				}
				if request.PageToken = r.GetNextPageToken(); request.PageToken == "" || left == 0 {
					if left == most && !asJSON {
						_, err = fmt.Fprintln(out, "nothing was changed")
						tellUnknownDomain(cmd, a, domain)
					}
					return err
				}
			}
		})
	}
	return cmd
}

func printRecord(out io.Writer, r *adminv1.AuditRecord, asJSON bool) error {
	if asJSON {
		return printMessage(out, r)
	}
	_, err := fmt.Fprintf(tableOn(out), "%s  %s  %s\n", momentOf(r.GetTime()), orDash(spelling.Visible(r.GetMadeBy())), spelling.Visible(recordText(r)))
	return err
}

// recordText says what was changed.
func recordText(r *adminv1.AuditRecord) string {
	if r.GetKind() == adminv1.AuditKind_AUDIT_KIND_RESTORED {
		return fmt.Sprintf("restored %d of the assignments that Redis had lost", r.GetRestored())
	}
	at := r.GetTime().AsTime().Local()
	text := subjectText(r.GetDomain(), r.GetEntries()) + ": "
	switch r.GetKind() {
	case adminv1.AuditKind_AUDIT_KIND_RESET:
		text += "reset"
		if len(r.GetLimits()) > 0 {
			text += " " + limitNames(r.GetLimits())
		}
	default:
		text += describeAssignment(r.GetAfter(), at)
		if r.GetBefore() != nil {
			text += "; until then " + describeAssignment(r.GetBefore(), at)
		}
	}
	switch {
	case r.GetReason() == "" || r.GetReason() == r.GetAfter().GetReason():
	case r.GetKind() == adminv1.AuditKind_AUDIT_KIND_UNASSIGNED:
		text += fmt.Sprintf("; ended with the reason %q", r.GetReason())
	default:
		text += fmt.Sprintf(" (reason: %q)", r.GetReason())
	}
	return text
}

// limitNames lists names of limits; a limit may have none.
func limitNames(names []string) string {
	shown := make([]string, len(names))
	for i, name := range names {
		shown[i] = orElse(name, "the limit without a name")
	}
	return strings.Join(shown, ", ")
}

// momentOf is a moment in the shell's time zone.
func momentOf(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return t.AsTime().Local().Truncate(time.Second).Format(time.RFC3339)
}
