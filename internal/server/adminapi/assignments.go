package adminapi

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/server/accounts"
	"github.com/ratelimitd/ratelimitd/internal/server/decide"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

const (
	// putsMost bounds the changes of a request.
	putsMost = 1000
	// pageDefault and pageMost are how many assignments a page has.
	pageDefault, pageMost = 1000, 10_000
	// assignmentCost is what an assignment of usual length takes on its way into an
	// answer, in bytes.
	assignmentCost = 1 << 10
)

var errNoAssignments = status.Error(codes.Unimplemented, "this daemon keeps no assignments")

// hasAssignments returns an error while there is no table to be shown.
func (a *API) hasAssignments() error {
	switch {
	case a.Assignments == nil:
		return errNoAssignments
	case !a.Assignments.Loaded():
		return status.Error(codes.Unavailable, "the assignments are not loaded yet")
	}
	return nil
}

// PutAssignments implements adminv1.AdminServiceServer.
func (a *API) PutAssignments(ctx context.Context, r *adminv1.PutAssignmentsRequest) (*adminv1.PutAssignmentsResponse, error) {
	if err := a.hasAssignments(); err != nil {
		return nil, err
	}
	rules, err := a.rules()
	if err != nil {
		return nil, err
	}
	if n := len(r.GetPuts()); n == 0 || n > putsMost {
		return nil, decide.Invalid("puts: found %d; allowed: 1 to %d", n, putsMost)
	}
	response := &adminv1.PutAssignmentsResponse{Changes: make([]*adminv1.AssignmentChange, len(r.GetPuts()))}
	var changes []partial
	var at []int // the place of each change among the puts
	first := make(map[string]int)
	for i, put := range r.GetPuts() {
		asked, wrong := assignmentOf(put.GetAssignment(), a.Now())
		if wrong == "" {
			wrong = wrongForRules(rules, &asked)
		}
		subject := asked.Text()
		if _, again := first[subject]; wrong == "" && again {
			wrong = "found the domain and entries of an earlier put again; allowed: each once in a request"
		}
		if wrong != "" {
			response.Changes[i] = refused(wrong)
			continue
		}
		first[subject] = i
		asked.By = memberOf(ctx).Name
		changes, at = append(changes, partial{assign.Change{Assignment: asked, IfMatch: put.GetIfMatch()}, partOf(&asked)}), append(at, i)
	}
	if err := a.fits(r, changes); err != nil {
		return nil, err
	}
	if r.GetDryRun() {
		for i := range changes {
			response.Changes[at[i]] = showResult(a.expected(&changes[i]), changes[i].asked.IfMatch)
		}
		return response, nil
	}
	if len(changes) == 0 {
		return response, nil
	}
	applied, err := a.applyParts(ctx, changes)
	if err != nil {
		return nil, err
	}
	for i := range changes {
		response.Changes[at[i]] = showResult(applied.Results[i], changes[i].asked.IfMatch)
	}
	response.Pending = a.pending(ctx, applied.Pending)
	return response, nil
}

// fits returns an error if the answer to a request, which has each assignment as it
// was and as it is, might be more than callers read: its changes would be made, and
// nobody told.
func (a *API) fits(r *adminv1.PutAssignmentsRequest, changes []partial) error {
	const each = refusalMost + 128 // of who made it and when
	bytes := proto.Size(r) + each*len(r.GetPuts())
	for i := range changes {
		if before := a.Assignments.Table().Get(changes[i].asked.Assignment.Subject); before != nil {
			bytes += proto.Size(showAssignment(before))
		}
	}
	if bytes > endpoint.AnswerMost {
		return status.Errorf(codes.ResourceExhausted, "the answer might have more than %d bytes, which callers do not read; nothing was changed: put fewer at once", endpoint.AnswerMost)
	}
	return nil
}

// expected returns what would become of a change.
func (a *API) expected(p *partial) assign.Result {
	before := a.held(p.asked.Assignment.Subject)
	c := p.whole(before)
	r := assign.Result{Outcome: c.Decide(before), Before: before}
	switch r.Outcome {
	case assign.Conflict, assign.Unchanged:
		r.After = before
	case assign.Deleted:
	default:
		r.After = &c.Assignment
	}
	return r
}

// held returns the assignment of a subject that is in force, or nil.
func (a *API) held(s assign.Subject) *assign.Assignment {
	return a.Assignments.Table().Get(s).InForce(a.Now().UnixMicro())
}

// apply has the store make changes, and logs each.
func (a *API) apply(ctx context.Context, changes []assign.Change) (assign.Applied, error) {
	applied, err := a.Assignments.Apply(ctx, changes)
	if errors.Is(err, assign.ErrNothingChanged) {
		a.Log.Error("assignments cannot be kept", "error", err)
		return applied, status.Errorf(codes.Unavailable, "%v", err)
	}
	if len(applied.Results) != len(changes) {
		return applied, status.Errorf(codes.Unavailable, "the store did not answer, and nothing was changed: %v", err)
	}
	for i := range changes {
		a.logChange(&changes[i], &applied.Results[i], len(applied.Pending))
	}
	if err != nil {
		a.Log.Warn("the store did not answer for some changes of assignments", "error", err)
	}
	return applied, nil
}

var outcomes = map[assign.Outcome]adminv1.ChangeOutcome{
	assign.Unknown:   adminv1.ChangeOutcome_CHANGE_OUTCOME_UNKNOWN,
	assign.Created:   adminv1.ChangeOutcome_CHANGE_OUTCOME_CREATED,
	assign.Replaced:  adminv1.ChangeOutcome_CHANGE_OUTCOME_REPLACED,
	assign.Unchanged: adminv1.ChangeOutcome_CHANGE_OUTCOME_UNCHANGED,
	assign.Deleted:   adminv1.ChangeOutcome_CHANGE_OUTCOME_DELETED,
	assign.Conflict:  adminv1.ChangeOutcome_CHANGE_OUTCOME_CONFLICT,
	assign.Full:      adminv1.ChangeOutcome_CHANGE_OUTCOME_REFUSED,
}

// logChange logs a change that was made, or that may have been.
func (a *API) logChange(c *assign.Change, r *assign.Result, pending int) {
	words := map[assign.Outcome]string{assign.Created: "created", assign.Replaced: "replaced", assign.Deleted: "deleted", assign.Unknown: "unknown"}
	word, ok := words[r.Outcome]
	if !ok {
		return
	}
	a.Log.Info("assignment changed", "by", c.Assignment.By, "outcome", word, "domain", c.Assignment.Domain, "entries", assign.Print(c.Assignment.Entries),
		"before", describe(r.Before), "after", describe(r.After), "reason", c.Assignment.Reason, "daemons_pending", pending)
}

// refusalMost bounds the text of why a change was refused, in bytes.
const refusalMost = 512

func refused(why string) *adminv1.AssignmentChange {
	if len(why) > refusalMost {
		why = strings.ToValidUTF8(why[:refusalMost], "") + "..."
	}
	return &adminv1.AssignmentChange{Outcome: adminv1.ChangeOutcome_CHANGE_OUTCOME_REFUSED, Error: why}
}

// showResult says what became of a change that was to be of the version ifMatch.
func showResult(r assign.Result, ifMatch string) *adminv1.AssignmentChange {
	m := &adminv1.AssignmentChange{Outcome: outcomes[r.Outcome], Before: showAssignment(r.Before), After: showAssignment(r.After)}
	switch r.Outcome {
	case assign.Full:
		m.Error = "there is no room for more assignments"
	case assign.Conflict:
		m.Error = "the version that if_match names is not in force"
		if ifMatch == assign.IfNone {
			m.Error = "something is assigned already, and this was only to be made where nothing is"
		}
	case assign.Unknown:
		m.Error = "the store did not answer: it may be in force or not; ask again"
	}
	return m
}

// GetAssignment implements adminv1.AdminServiceServer.
func (a *API) GetAssignment(_ context.Context, r *adminv1.GetAssignmentRequest) (*adminv1.GetAssignmentResponse, error) {
	if err := a.hasAssignments(); err != nil {
		return nil, err
	}
	subject, err := subjectOf(r.GetDomain(), r.GetEntries())
	if err != nil {
		return nil, err
	}
	found := a.held(subject)
	if found == nil {
		return nil, status.Errorf(codes.NotFound, "nothing is assigned to %s in the domain %q", assign.Print(subject.Entries), subject.Domain)
	}
	return &adminv1.GetAssignmentResponse{Assignment: showAssignment(found)}, nil
}

// ListAssignments implements adminv1.AdminServiceServer.
func (a *API) ListAssignments(ctx context.Context, r *adminv1.ListAssignmentsRequest) (*adminv1.ListAssignmentsResponse, error) {
	if err := a.hasAssignments(); err != nil {
		return nil, err
	}
	most, err := pageSize(r.GetPageSize(), pageDefault, pageMost)
	if err != nil {
		return nil, err
	}
	if err := accounts.ConnectionOf(ctx).Reserve(ctx, int64(most*assignmentCost)); err != nil {
		return nil, err
	}
	table := a.Assignments.Table()
	q := assign.Query{Domain: r.GetDomain(), Prefix: r.GetPrefix(), Plan: r.GetPlan(), Blocked: r.GetBlocked(), Now: a.Now().UnixMicro(), Most: most, After: r.GetPageToken()}
	for {
		page, next, err := table.List(q)
		if err != nil {
			return nil, decide.Invalid("%v", err)
		}
		response := &adminv1.ListAssignmentsResponse{NextPageToken: next, Total: uint64(table.Len())}
		for _, found := range page {
			response.Assignments = append(response.Assignments, showAssignment(found.InForce(q.Now)))
		}
		// A page of the longest assignments would be more than callers read.
		if proto.Size(response) <= endpoint.AnswerMost || len(page) < 2 {
			return response, nil
		}
		q.Most = len(page) / 2
	}
}

// DeleteAssignment implements adminv1.AdminServiceServer.
func (a *API) DeleteAssignment(ctx context.Context, r *adminv1.DeleteAssignmentRequest) (*adminv1.DeleteAssignmentResponse, error) {
	if err := a.hasAssignments(); err != nil {
		return nil, err
	}
	change := changeWithoutTerms(ctx, r.GetDomain(), r.GetEntries(), r.GetReason())
	change.IfMatch = r.GetIfMatch()
	if err := change.Check(); err != nil {
		return nil, decide.Invalid("%v", err)
	}
	if _, known := adminv1.Part_name[int32(r.GetPart())]; !known {
		return nil, decide.Invalid("part: found %d; allowed: PART_BLOCK, PART_TERMS, or none for all of it", r.GetPart())
	}
	applied, err := a.applyParts(ctx, []partial{{change, r.GetPart()}})
	if err != nil {
		return nil, err
	}
	return &adminv1.DeleteAssignmentResponse{Change: showResult(applied.Results[0], change.IfMatch), Pending: a.pending(ctx, applied.Pending)}, nil
}

// changeWithoutTerms returns the change that ends what is assigned to a subject.
func changeWithoutTerms(ctx context.Context, domain string, entries []*ratelimitv1.Entry, reason string) assign.Change {
	return assign.Change{Delete: true, Assignment: assign.Assignment{
		Subject: assign.Subject{Domain: domain, Entries: entriesOf(entries)}, By: memberOf(ctx).Name, Reason: reason,
	}}
}
