package dial

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// MaxPage is how many assignments one call lists or changes at most.
const MaxPage = 1000

// EachPage passes on all assignments, page by page; an empty page once if there are none.
func EachPage(ctx context.Context, a Admin, request *adminv1.ListAssignmentsRequest, write func(page []*adminv1.Assignment, first bool) error) error {
	request.PageSize = MaxPage
	first := true
	for {
		r, err := Call(ctx, a, a.ListAssignments, request)
		if err != nil {
			return err
		}
		request.PageToken = r.GetNextPageToken()
		// If few of many are selected, pages before the last may be empty.
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

// WarnOfUnknownDomain says so if the daemon's limits files lack a domain. What was assigned
// in it may still exist.
func WarnOfUnknownDomain(cmd *cobra.Command, a Admin, domain string) {
	if domain == "" {
		return
	}
	r, err := Call(cmd.Context(), a, a.ListDomains, &adminv1.ListDomainsRequest{})
	if err != nil || slices.ContainsFunc(r.GetDomains(), func(d *adminv1.Domain) bool { return d.GetName() == domain }) {
		return
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "no limits have the domain %s\n", yamlfile.Quote(domain))
}
