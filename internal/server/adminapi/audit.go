package adminapi

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/server/assignmsg"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

const (
	// recordsDefault and maxRecordsShown are how many records a page has.
	recordsDefault, maxRecordsShown = 100, 1000
	// recordsAtATime is how many are read together for a page.
	recordsAtATime = 250
)

// ListAudit implements adminv1.AdminServiceServer.
func (a *API) ListAudit(ctx context.Context, r *adminv1.ListAuditRequest) (*adminv1.ListAuditResponse, error) {
	if a.Assignments == nil {
		return nil, errNoAssignments
	}
	left, err := pageSize(r.GetPageSize(), recordsDefault, maxRecordsShown)
	if err != nil {
		return nil, err
	}
	after, err := readPageToken(r.GetPageToken())
	if err != nil {
		return nil, err
	}
	switch n := len(r.GetEntries()); {
	case n > 0 && r.GetDomain() == "":
		return nil, endpoint.Invalid("entries: found %d without a domain; allowed: with the domain that they are of", n)
	case n > assign.MaxEntries:
		return nil, endpoint.Invalid("entries: found %d; allowed: at most %d", n, assign.MaxEntries)
	}
	of := a.known(assign.Subject{Domain: r.GetDomain(), Entries: assignmsg.Entries(r.GetEntries())})
	q := assign.RecordQuery{Domain: of.Domain, Entries: of.Entries, After: after}
	response, size := new(adminv1.ListAuditResponse), pageSum{}
	for {
		q.Max = min(left, recordsAtATime)
		records, next, err := a.records(ctx, q)
		if err != nil {
			return nil, err
		}
		last := q.After
		for i := range records {
			shown := assignmsg.ShowRecord(&records[i])
			if !size.fits(shown) {
				response.NextPageToken = pageToken(last)
				return response, nil
			}
			response.Records = append(response.Records, shown)
			last = records[i].ID
		}
		left -= len(records)
		// If it returned fewer than it may, the store has looked at as many as it does
		// for a page.
		if next == "" || left == 0 || len(records) < q.Max {
			response.NextPageToken = pageToken(next)
			return response, nil
		}
		q.After = next
	}
}

// records asks the store. Its error is a status.
func (a *API) records(ctx context.Context, q assign.RecordQuery) ([]assign.Record, string, error) {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	records, next, err := a.Assignments.Records(ctx, q)
	switch {
	case errors.Is(err, assign.ErrPageToken):
		return nil, "", endpoint.Invalid("%v", err)
	case err != nil:
		return nil, "", status.Errorf(codes.Unavailable, "the store does not answer: %v", err)
	}
	return records, next, nil
}

// pageSum counts the bytes of a page's items, as messages.
type pageSum struct{ bytes, items int }

// fits counts an item, unless the page would be more than callers read. The first always
// fits.
func (p *pageSum) fits(item proto.Message) bool {
	const head = 8 // bytes of an item's tag and length, at most
	p.bytes += proto.Size(item) + head
	if p.items > 0 && p.bytes > endpoint.MaxAnswer {
		return false
	}
	p.items++
	return true
}
