package adminapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/trace"
	"github.com/ratelimitd/ratelimitd/internal/server/assignmsg"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

const (
	// maxChanges bounds the changes of a request.
	maxChanges = 1000
	// pageDefault and maxPageSize are how many assignments a page has.
	pageDefault, maxPageSize = 1000, 10_000
)

var errNoAssignments = status.Error(codes.Unimplemented, "this daemon keeps no assignments")

// notLoaded is why nothing can be shown or changed while a daemon starts.
const notLoaded = "the assignments are not loaded yet"

// hasAssignments returns an error while there is no table to be shown.
func (a *API) hasAssignments() error {
	switch {
	case a.Assignments == nil:
		return errNoAssignments
	case !a.Assignments.Loaded():
		return status.Error(codes.Unavailable, notLoaded)
	}
	return nil
}

// PutAssignments implements adminv1.AdminServiceServer.
func (a *API) PutAssignments(ctx context.Context, r *adminv1.PutAssignmentsRequest) (*adminv1.PutAssignmentsResponse, error) {
	if err := a.mayChange("puts", len(r.GetPuts())); err != nil {
		return nil, err
	}
	all := make([]askedChange, len(r.GetPuts()))
	for i, put := range r.GetPuts() {
		all[i].read(assignmsg.Put(put, a.Now()))
	}
	changes, err := a.changeAll(ctx, r, all)
	if err != nil {
		return nil, err
	}
	return &adminv1.PutAssignmentsResponse{Changes: changes}, nil
}

// PatchAssignments implements adminv1.AdminServiceServer.
func (a *API) PatchAssignments(ctx context.Context, r *adminv1.PatchAssignmentsRequest) (*adminv1.PatchAssignmentsResponse, error) {
	if err := a.mayChange("patches", len(r.GetPatches())); err != nil {
		return nil, err
	}
	all := make([]askedChange, len(r.GetPatches()))
	for i, patch := range r.GetPatches() {
		all[i].read(assignmsg.Patch(patch, a.Now()))
	}
	changes, err := a.changeAll(ctx, r, all)
	if err != nil {
		return nil, err
	}
	return &adminv1.PatchAssignmentsResponse{Changes: changes}, nil
}

// mayChange returns why a request with n changes cannot be answered, or nil.
func (a *API) mayChange(where string, n int) error {
	if a.Assignments == nil {
		return errNoAssignments
	}
	if n == 0 || n > maxChanges {
		return endpoint.Invalid("%s: found %d; allowed: 1 to %d", where, n, maxChanges)
	}
	return nil
}

// askedChange is a change that a request asks for, or what is wrong with it.
type askedChange struct {
	change assign.Change
	wrong  string
	// hints name what may have been meant if something is wrong, a sentence each.
	hints []string
	// warnings are what its maker should know, a sentence each. If it is idle, the first
	// says why it would have no effect.
	warnings []string
	idle     bool
}

// read keeps a change as it was read, or what is wrong with it.
func (q *askedChange) read(c assign.Change, err error) {
	if q.change = c; err != nil {
		q.wrong = err.Error()
	}
}

// changesRequest is a request of PutAssignments or PatchAssignments.
type changesRequest interface {
	proto.Message
	GetDryRun() bool
	GetStrict() bool
}

// changeAll makes the valid changes of a request, or says what they would do, and answers
// for each.
func (a *API) changeAll(ctx context.Context, request changesRequest, all []askedChange) ([]*adminv1.AssignmentChange, error) {
	// A change that only ends something needs no rules, except to see whether it is relief.
	rules, err := a.rules()
	member := memberOf(ctx)
	if err != nil && (member.Role < access.Operator || slices.ContainsFunc(all, func(q askedChange) bool { return q.change.Sets() })) {
		return nil, err
	}
	answers := make([]*adminv1.AssignmentChange, len(all))
	if !a.Assignments.Loaded() {
		for i := range answers {
			answers[i] = &adminv1.AssignmentChange{
				Outcome: adminv1.ChangeOutcome_CHANGE_OUTCOME_FAILED, Error: notLoaded + ", so nothing was changed", Temporary: true,
			}
		}
		return answers, nil
	}
	var changes []assign.Change
	var at []int // the place of each change in the request
	seen := make(map[string]bool)
	reacher := trace.NewReacher(rules, len(all))
	for i := range all {
		q := &all[i]
		if q.wrong == "" {
			q.change.Subject = a.counted(q.change.Subject)
			a.judge(rules, reacher, q)
		}
		subject := q.change.Text()
		switch {
		case q.wrong != "":
			answers[i] = refused(q.wrong, q.hints...)
			continue
		case seen[subject]:
			answers[i] = refused("found the domain and entries of an earlier change again; allowed: each once in a request")
			continue
		case q.idle && request.GetStrict():
			answers[i] = refused(q.warnings[0])
			answers[i].Warnings = q.warnings
			continue
		}
		if member.Role < access.Operator {
			if err := a.mayRelieve(member, rules.Domain(q.change.Domain), &q.change); err != nil {
				return nil, err
			}
		}
		seen[subject] = true
		signBy(&q.change, member.Name)
		changes, at = append(changes, q.change), append(at, i)
	}
	if err := a.fits(request, all, changes); err != nil {
		return nil, err
	}
	if len(changes) == 0 {
		return answers, nil
	}
	results, err := a.make(ctx, changes, request.GetDryRun())
	if err != nil {
		return nil, err
	}
	for i := range changes {
		m := showResult(&results[i], changes[i].IfMatch)
		if m.GetError() == "" && (changes[i].Sets() || m.GetBefore() == nil) {
			m.Warnings = all[at[i]].warnings
		}
		answers[at[i]] = m
	}
	return answers, nil
}

// signBy says who makes a change.
func signBy(c *assign.Change, name string) {
	c.By = name
	for i := range c.Set {
		c.Set[i].By = name
	}
}

// fits returns why the answer to a request that asks for all might be more than callers
// read, as a status, or nil: the changes would be made without an answer. The answer has
// each of the changes' assignments as it was and as it is.
func (a *API) fits(request proto.Message, all []askedChange, changes []assign.Change) error {
	const each = maxRefusalText + 128 // of who made it and when
	bytes := proto.Size(request) + each*len(all)
	for i := range all {
		for _, text := range slices.Concat(all[i].warnings, all[i].hints) {
			bytes += len(text)
		}
	}
	for i := range changes {
		before := a.Assignments.Table().Get(changes[i].Subject)
		if before == nil {
			continue
		}
		size := proto.Size(assignmsg.Show(before))
		if bytes += size; !changes[i].Remove.Rest || len(before.Layers) > 0 {
			bytes += size // which may stay
		}
	}
	if bytes > endpoint.MaxAnswer {
		return status.Errorf(codes.ResourceExhausted, "the answer might have more than %d bytes, which callers do not read; nothing was changed: put fewer at once", endpoint.MaxAnswer)
	}
	return nil
}

// expected returns the result that a change would have.
func (a *API) expected(c *assign.Change) assign.Result {
	before, after, outcome := c.Apply(a.Assignments.Table().Get(c.Subject), a.Now().UnixMicro())
	return assign.Result{Outcome: outcome, Before: before, After: after}
}

// held returns the assignment of a subject that is in force, or nil.
func (a *API) held(s assign.Subject) *assign.Assignment {
	return a.Assignments.Table().Get(s).InForce(a.Now().UnixMicro())
}

// make makes changes in the store, and logs each; a dry run says what they would do.
func (a *API) make(ctx context.Context, changes []assign.Change, dryRun bool) ([]assign.Result, error) {
	if dryRun {
		results := make([]assign.Result, len(changes))
		for i := range changes {
			results[i] = a.expected(&changes[i])
		}
		return results, nil
	}
	results, err := a.Assignments.Apply(ctx, changes)
	if errors.Is(err, assign.ErrNothingChanged) {
		a.Log.Error("assignments cannot be kept", "error", err)
		return nil, status.Errorf(codes.Unavailable, "%v", err)
	}
	if len(results) != len(changes) {
		return nil, status.Errorf(codes.Unavailable, "the store did not answer, and nothing was changed: %v", err)
	}
	for i := range changes {
		a.logChange(&changes[i], &results[i])
	}
	if err != nil {
		a.Log.Warn("the store did not answer for some changes of assignments, or refused them", "error", err)
	}
	return results, nil
}

var outcomes = map[assign.Outcome]adminv1.ChangeOutcome{
	assign.Unknown:   adminv1.ChangeOutcome_CHANGE_OUTCOME_UNKNOWN,
	assign.Created:   adminv1.ChangeOutcome_CHANGE_OUTCOME_CREATED,
	assign.Replaced:  adminv1.ChangeOutcome_CHANGE_OUTCOME_REPLACED,
	assign.Unchanged: adminv1.ChangeOutcome_CHANGE_OUTCOME_UNCHANGED,
	assign.Deleted:   adminv1.ChangeOutcome_CHANGE_OUTCOME_DELETED,
	assign.Conflict:  adminv1.ChangeOutcome_CHANGE_OUTCOME_CONFLICT,
	assign.Full:      adminv1.ChangeOutcome_CHANGE_OUTCOME_REFUSED,
	assign.Failed:    adminv1.ChangeOutcome_CHANGE_OUTCOME_FAILED,

	assign.TooManyNumbers: adminv1.ChangeOutcome_CHANGE_OUTCOME_REFUSED,
	assign.TooManyLayers:  adminv1.ChangeOutcome_CHANGE_OUTCOME_REFUSED,
}

// logChange logs a change that was made, or that may have been.
func (a *API) logChange(c *assign.Change, r *assign.Result) {
	words := map[assign.Outcome]string{assign.Created: "created", assign.Replaced: "replaced", assign.Deleted: "deleted", assign.Unknown: "unknown"}
	word, ok := words[r.Outcome]
	if !ok {
		return
	}
	a.Log.Info("assignment changed", "by", c.By, "outcome", word, "domain", c.Domain, "entries", spelling.Entries(c.Entries),
		"before", logged(r.Before), "after", logged(r.After), "reason", c.Reason)
}

// maxRefusalText bounds the text of why a change was refused, without hints, in bytes.
const maxRefusalText = 512

func shortened(why string) string {
	if len(why) > maxRefusalText {
		return strings.ToValidUTF8(why[:maxRefusalText], "") + "..."
	}
	return why
}

func refused(why string, hints ...string) *adminv1.AssignmentChange {
	return &adminv1.AssignmentChange{Outcome: adminv1.ChangeOutcome_CHANGE_OUTCOME_REFUSED, Error: withHints(shortened(why), hints)}
}

// showResult returns the result of a change that was for the version ifMatch.
func showResult(r *assign.Result, ifMatch string) *adminv1.AssignmentChange {
	m := &adminv1.AssignmentChange{Outcome: outcomes[r.Outcome], Before: assignmsg.Show(r.Before), After: assignmsg.Show(r.After)}
	switch r.Outcome {
	case assign.Full:
		m.Error = "there is no room for more assignments"
	case assign.TooManyNumbers:
		m.Error = fmt.Sprintf("numbers: with those that are assigned already there would be more than %d; remove some", assign.MaxNumbers)
	case assign.TooManyLayers:
		m.Error = fmt.Sprintf("with those that are there already there would be more than %d temporary layers; end some first (unassign --temporary)", assign.MaxLayers)
	case assign.Conflict:
		m.Error = "the version that if_match names is not in force"
		if ifMatch == assign.IfNone {
			m.Error = "something is assigned already, and this was only to be made where nothing is"
		}
	case assign.Failed:
		m.Error, m.Temporary = shortened(r.Err.Error()), r.Passes
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
	subject, err := a.subjectOf(r.GetDomain(), r.GetEntries())
	if err != nil {
		return nil, err
	}
	found := a.held(subject)
	if found == nil {
		return nil, status.Errorf(codes.NotFound, "nothing is assigned to %s in the domain %q", spelling.Entries(subject.Entries), subject.Domain)
	}
	return &adminv1.GetAssignmentResponse{Assignment: assignmsg.Show(found)}, nil
}

// ListAssignments implements adminv1.AdminServiceServer.
func (a *API) ListAssignments(_ context.Context, r *adminv1.ListAssignmentsRequest) (*adminv1.ListAssignmentsResponse, error) {
	if err := a.hasAssignments(); err != nil {
		return nil, err
	}
	maxListed, err := pageSize(r.GetPageSize(), pageDefault, maxPageSize)
	if err != nil {
		return nil, err
	}
	table := a.Assignments.Table()
	q := assign.Query{Domain: r.GetDomain(), Prefix: r.GetPrefix(), Plan: r.GetPlan(), Blocked: r.GetBlocked(), Now: a.Now().UnixMicro(), Max: maxListed, After: r.GetPageToken()}
	response := &adminv1.ListAssignmentsResponse{Total: uint64(table.Len())}
	size := pageSum{}
	response.NextPageToken, err = table.Each(q, func(found *assign.Assignment) bool {
		shown := assignmsg.Show(found.InForce(q.Now))
		if !size.fits(shown) {
			return false
		}
		response.Assignments = append(response.Assignments, shown)
		return true
	})
	if err != nil {
		return nil, endpoint.Invalid("%v", err)
	}
	return response, nil
}

// DeleteAssignment implements adminv1.AdminServiceServer.
func (a *API) DeleteAssignment(ctx context.Context, r *adminv1.DeleteAssignmentRequest) (*adminv1.DeleteAssignmentResponse, error) {
	if err := a.hasAssignments(); err != nil {
		return nil, err
	}
	change := a.removal(ctx, r.GetDomain(), r.GetEntries(), r.GetReason())
	change.IfMatch = r.GetIfMatch()
	if r.GetPart() != adminv1.Part_PART_UNSPECIFIED {
		change.Remove = assign.Parts{}
		if !assignmsg.AddPart(&change.Remove, r.GetPart()) {
			return nil, endpoint.Invalid("part: found %d; allowed: %s, or none for all of it", r.GetPart(), assignmsg.AllowedParts)
		}
	}
	if err := change.Check(); err != nil {
		return nil, endpoint.Invalid("%v", err)
	}
	results, err := a.make(ctx, []assign.Change{change}, false)
	if err != nil {
		return nil, err
	}
	response := &adminv1.DeleteAssignmentResponse{Change: showResult(&results[0], change.IfMatch)}
	if rules := a.Live.Rules(); rules != nil && results[0].Outcome == assign.Unchanged && results[0].Before == nil {
		response.Change.Warnings = absent(trace.NewReacher(rules, 1), &change.Subject)
	}
	return response, nil
}

// removal returns the change that ends all that is assigned to a subject.
func (a *API) removal(ctx context.Context, domain string, entries []*ratelimitv1.Entry, reason string) assign.Change {
	return assign.Change{
		Subject: a.known(assign.Subject{Domain: domain, Entries: assignmsg.Entries(entries)}), Remove: assign.AllParts(), By: memberOf(ctx).Name, Reason: reason,
	}
}
