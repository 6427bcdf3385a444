package adminapi

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/server/assignmsg"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// UndoAssignment implements adminv1.AdminServiceServer.
func (a *API) UndoAssignment(ctx context.Context, r *adminv1.UndoAssignmentRequest) (*adminv1.UndoAssignmentResponse, error) {
	if err := a.hasAssignments(); err != nil {
		return nil, err
	}
	subject, err := a.subjectOf(r.GetDomain(), r.GetEntries())
	if err != nil {
		return nil, err
	}
	last, err := a.lastRecord(ctx, subject)
	if err != nil {
		return nil, err
	}
	change, err := assign.Undo(*last)
	if err != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "%v", err)
	}
	change.By, change.Reason = memberOf(ctx).Name, r.GetReason()
	if err := change.Check(); err != nil {
		return nil, endpoint.Invalid("%v", err)
	}
	results, err := a.make(ctx, []assign.Change{change}, r.GetDryRun())
	if err != nil {
		return nil, err
	}
	m := showResult(&results[0], change.IfMatch)
	switch {
	case results[0].Outcome != assign.Conflict:
	case results[0].Before == nil:
		m.Error = "the last change is over: nothing is assigned any more"
	default:
		m.Error = "it was changed in the meantime; ask again"
	}
	return &adminv1.UndoAssignmentResponse{Change: m, Undone: assignmsg.ShowRecord(last)}, nil
}

// lastRecord returns the newest record of a subject, unless it is that of a reset. Its
// error is a status.
func (a *API) lastRecord(ctx context.Context, s assign.Subject) (*assign.Record, error) {
	q := assign.RecordQuery{Domain: s.Domain, Entries: s.Entries, Max: 1}
	for {
		records, next, err := a.records(ctx, q)
		switch {
		case err != nil:
			return nil, err
		case len(records) > 0:
			last := &records[0]
			if last.Kind == assign.WasReset || last.Kind == assign.ResetFailed {
				return nil, status.Errorf(codes.FailedPrecondition, "the last change of %s, by %q at %s, was a reset: what was counted is gone, and cannot be brought back",
					words.Entries(s.Entries), last.By, moment(last.Moment).AsTime().Format("2006-01-02T15:04:05Z"))
			}
			return last, nil
		case next == "":
			return nil, status.Errorf(codes.FailedPrecondition, "there is no record of a change of %s in the domain %q, so there is none to undo", words.Entries(s.Entries), s.Domain)
		}
		q.After = next // the store looks at so many for a page
	}
}
