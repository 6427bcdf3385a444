package adminapi

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/server/accounts"
	"github.com/ratelimitd/ratelimitd/internal/server/decide"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

const (
	// recordsDefault and recordsMost are how many records a page has.
	recordsDefault, recordsMost = 100, 1000
	// recordCost is what a record takes on its way into an answer, in bytes: two
	// assignments and more.
	recordCost = 3 << 10
)

// ListAudit implements adminv1.AdminServiceServer.
func (a *API) ListAudit(ctx context.Context, r *adminv1.ListAuditRequest) (*adminv1.ListAuditResponse, error) {
	if a.Assignments == nil {
		return nil, errNoAssignments
	}
	most, err := pageSize(r.GetPageSize(), recordsDefault, recordsMost)
	if err != nil {
		return nil, err
	}
	after, err := readPageToken(r.GetPageToken())
	if err != nil {
		return nil, err
	}
	switch n := len(r.GetEntries()); {
	case n > 0 && r.GetDomain() == "":
		return nil, decide.Invalid("entries: found %d without a domain; allowed: with the domain that they are of", n)
	case n > assign.MaxEntries:
		return nil, decide.Invalid("entries: found %d; allowed: at most %d", n, assign.MaxEntries)
	}
	if err := accounts.ConnectionOf(ctx).Reserve(ctx, int64(most*recordCost)); err != nil {
		return nil, err
	}
	q := assign.RecordQuery{Domain: r.GetDomain(), Entries: entriesOf(r.GetEntries()), Most: most, After: after}
	for {
		records, next, err := a.Assignments.Records(ctx, q)
		switch {
		case errors.Is(err, assign.ErrPageToken):
			return nil, decide.Invalid("%v", err)
		case err != nil:
			return nil, status.Errorf(codes.Unavailable, "the store does not answer: %v", err)
		}
		response := &adminv1.ListAuditResponse{NextPageToken: pageToken(next)}
		for i := range records {
			response.Records = append(response.Records, showRecord(&records[i]))
		}
		// A page of the longest records would be more than callers read.
		if proto.Size(response) <= endpoint.AnswerMost || len(records) < 2 {
			return response, nil
		}
		q.Most = len(records) / 2
	}
}
