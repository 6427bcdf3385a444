package adminapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/trace"
	"github.com/ratelimitd/ratelimitd/internal/server/accounts"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

const (
	// maxChanges bounds the changes of a request.
	maxChanges = 1000
	// putByteCost is how many bytes of memory each byte takes that an answer may have.
	// Most answers have far fewer.
	putByteCost = 4
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
		all[i] = a.askedByPut(put)
	}
	changes, reached, err := a.changeAll(ctx, r, all)
	if err != nil {
		return nil, err
	}
	response := &adminv1.PutAssignmentsResponse{Changes: changes}
	response.Pending, response.UnknownFor = a.showReached(ctx, reached)
	return response, nil
}

// PatchAssignments implements adminv1.AdminServiceServer.
func (a *API) PatchAssignments(ctx context.Context, r *adminv1.PatchAssignmentsRequest) (*adminv1.PatchAssignmentsResponse, error) {
	if err := a.mayChange("patches", len(r.GetPatches())); err != nil {
		return nil, err
	}
	all := make([]askedChange, len(r.GetPatches()))
	for i, patch := range r.GetPatches() {
		all[i] = a.askedByPatch(patch)
	}
	changes, reached, err := a.changeAll(ctx, r, all)
	if err != nil {
		return nil, err
	}
	response := &adminv1.PatchAssignmentsResponse{Changes: changes}
	response.Pending, response.UnknownFor = a.showReached(ctx, reached)
	return response, nil
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
	// says why it would do nothing for anybody.
	warnings []string
	idle     bool
}

// changesRequest is a request of PutAssignments or PatchAssignments.
type changesRequest interface {
	proto.Message
	GetDryRun() bool
	GetStrict() bool
	GetMaxWait() *durationpb.Duration
}

// askedByPut returns the change of a put: everything except a block, or a block alone.
func (a *API) askedByPut(put *adminv1.PutAssignment) askedChange {
	assignment, wrong := assignmentOf(put.GetAssignment(), a.Now())
	q := askedChange{change: assign.Change{Assignment: assignment, IfMatch: put.GetIfMatch()}, wrong: wrong}
	q.change.Remove.Rest = assignment.HasMore()
	if err := assignment.Check(); q.wrong == "" && err != nil {
		q.wrong = err.Error()
	}
	return q
}

func (a *API) askedByPatch(patch *adminv1.AssignmentPatch) askedChange {
	assignment, wrong := assignmentOf(patch.GetAssignment(), a.Now())
	q := askedChange{change: assign.Change{Assignment: assignment, IfMatch: patch.GetIfMatch()}, wrong: wrong}
	q.change.Remove.Limits, q.change.RestOfDomain = patch.GetRemoveLimits(), patch.GetRestOfDomain()
	for i, part := range patch.GetRemove() {
		if !addPart(&q.change.Remove, part) && q.wrong == "" {
			q.wrong = fmt.Sprintf("remove[%d]: found %s; allowed: %s", i, part, allowedParts)
		}
	}
	if err := q.change.Check(); q.wrong == "" && err != nil {
		q.wrong = err.Error()
	}
	if q.wrong == "" && !q.change.Sets() && patch.GetAssignment().GetUntil() != nil {
		q.wrong = "until: found it without a part that it would end; allowed: both"
	}
	return q
}

const allowedParts = "PART_BLOCK, PART_TERMS, PART_PLAN, PART_UNLIMITED, PART_NUMBERS or PART_CALENDAR"

// addPart adds a part to those that are removed. It reports whether there is such a part.
func addPart(to *assign.Parts, part adminv1.Part) bool {
	switch part {
	case adminv1.Part_PART_BLOCK:
		to.Block = true
	case adminv1.Part_PART_TERMS:
		to.Rest = true
	case adminv1.Part_PART_PLAN:
		to.Plan = true
	case adminv1.Part_PART_UNLIMITED:
		to.Unlimited = true
	case adminv1.Part_PART_NUMBERS:
		to.Numbers = true
	case adminv1.Part_PART_CALENDAR:
		to.Calendar = true
	default:
		return false
	}
	return true
}

// maxMaxWait bounds how long a request may make an answer wait for the daemons.
const maxMaxWait = 10 * time.Second

// maxWaitOf returns how long the answer to a request waits at most for the daemons; nothing
// if the request does not say. Its error is a status.
func maxWaitOf(request interface{ GetMaxWait() *durationpb.Duration }) ([]assign.MaxWait, error) {
	asked := request.GetMaxWait()
	if asked == nil {
		return nil, nil
	}
	maxWait := asked.AsDuration()
	if !asked.IsValid() || maxWait < 0 || maxWait > maxMaxWait {
		return nil, endpoint.Invalid("max_wait: found %v; allowed: 0s to %v, or none", maxWait, maxMaxWait)
	}
	return []assign.MaxWait{assign.MaxWait(maxWait)}, nil
}

// changeAll makes the valid changes of a request, or says what they would do, and answers
// for each.
func (a *API) changeAll(ctx context.Context, request changesRequest, all []askedChange) (_ []*adminv1.AssignmentChange, none assign.Reached, _ error) {
	maxWait, err := maxWaitOf(request)
	if err != nil {
		return nil, none, err
	}
	// A change that only ends something needs no rules.
	rules, err := a.rules()
	if err != nil && slices.ContainsFunc(all, func(q askedChange) bool { return q.change.Sets() }) {
		return nil, none, err
	}
	answers := make([]*adminv1.AssignmentChange, len(all))
	if !a.Assignments.Loaded() {
		for i := range answers {
			answers[i] = &adminv1.AssignmentChange{
				Outcome: adminv1.ChangeOutcome_CHANGE_OUTCOME_FAILED, Error: notLoaded + ", so nothing was changed", Temporary: true,
			}
		}
		return answers, none, nil
	}
	var changes []assign.Change
	var at []int // the place of each change in the request
	seen := make(map[string]bool)
	reacher := trace.NewReacher(rules, len(all))
	for i := range all {
		q := &all[i]
		c := &q.change
		if q.wrong == "" {
			a.judge(rules, reacher, q)
		}
		subject := c.Assignment.Text()
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
		seen[subject] = true
		c.Assignment.By = memberOf(ctx).Name
		changes, at = append(changes, *c), append(at, i)
	}
	if err := a.fits(ctx, request, all, changes); err != nil {
		return nil, none, err
	}
	if len(changes) == 0 {
		return answers, none, nil
	}
	show := func(i int, r assign.Result, old []string) {
		m := showResult(r, changes[i].IfMatch, old)
		if m.GetError() == "" && (changes[i].Sets() || r.Before == nil) {
			m.Warnings = all[at[i]].warnings
		}
		answers[at[i]] = m
	}
	if request.GetDryRun() {
		for i := range changes {
			show(i, a.expected(&changes[i]), nil)
		}
		return answers, none, nil
	}
	applied, err := a.apply(ctx, changes, maxWait)
	if err != nil {
		return nil, none, err
	}
	for i := range changes {
		show(i, applied.Results[i], applied.Old)
	}
	return answers, applied.Reached, nil
}

// fits makes room for the answer to a request that asks for all, which has each of the
// changes' assignments as it was and as it is. It fails if that might be more than callers
// read: the changes would be made, and nobody would be told.
func (a *API) fits(ctx context.Context, request proto.Message, all []askedChange, changes []assign.Change) error {
	const each = maxRefusalText + 128 // of who made it and when
	bytes := proto.Size(request) + each*len(all)
	for i := range all {
		for _, text := range slices.Concat(all[i].warnings, all[i].hints) {
			bytes += len(text)
		}
	}
	for i := range changes {
		before := a.Assignments.Table().Get(changes[i].Assignment.Subject)
		if before == nil {
			continue
		}
		size := proto.Size(showAssignment(before))
		if bytes += size; !changes[i].Remove.Rest {
			bytes += size // which may stay
		}
	}
	if bytes > endpoint.MaxAnswer {
		return status.Errorf(codes.ResourceExhausted, "the answer might have more than %d bytes, which callers do not read; nothing was changed: put fewer at once", endpoint.MaxAnswer)
	}
	return accounts.ConnectionOf(ctx).Reserve(ctx, int64(putByteCost*bytes))
}

// expected returns the result that a change would have.
func (a *API) expected(c *assign.Change) assign.Result {
	before, after, outcome := c.Apply(a.Assignments.Table().Get(c.Assignment.Subject), a.Now().UnixMicro())
	return assign.Result{Outcome: outcome, Before: before, After: after}
}

// held returns the assignment of a subject that is in force, or nil.
func (a *API) held(s assign.Subject) *assign.Assignment {
	return a.Assignments.Table().Get(s).InForce(a.Now().UnixMicro())
}

// apply makes changes in the store, and logs each.
func (a *API) apply(ctx context.Context, changes []assign.Change, maxWait []assign.MaxWait) (assign.Applied, error) {
	applied, err := a.Assignments.Apply(ctx, changes, maxWait...)
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
		a.Log.Warn("the store did not answer for some changes of assignments, or refused them", "error", err)
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
	assign.Failed:    adminv1.ChangeOutcome_CHANGE_OUTCOME_FAILED,

	assign.TooManyNumbers: adminv1.ChangeOutcome_CHANGE_OUTCOME_REFUSED,
	assign.NeedsParts:     adminv1.ChangeOutcome_CHANGE_OUTCOME_REFUSED,
}

// logChange logs a change that was made, or that may have been.
func (a *API) logChange(c *assign.Change, r *assign.Result, pending int) {
	words := map[assign.Outcome]string{assign.Created: "created", assign.Replaced: "replaced", assign.Deleted: "deleted", assign.Unknown: "unknown"}
	word, ok := words[r.Outcome]
	if !ok {
		return
	}
	a.Log.Info("assignment changed", "by", c.Assignment.By, "outcome", word, "domain", c.Assignment.Domain, "entries", spelling.Entries(c.Assignment.Entries),
		"before", describe(r.Before), "after", describe(r.After), "reason", c.Assignment.Reason, "daemons_pending", pending)
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

// showResult returns the result of a change that was for the version ifMatch. old are the
// daemons that cannot read what needs parts.
func showResult(r assign.Result, ifMatch string, old []string) *adminv1.AssignmentChange {
	m := &adminv1.AssignmentChange{Outcome: outcomes[r.Outcome], Before: showAssignment(r.Before), After: showAssignment(r.After)}
	switch r.Outcome {
	case assign.Full:
		m.Error = "there is no room for more assignments"
	case assign.TooManyNumbers:
		m.Error = fmt.Sprintf("numbers: with those that are assigned already there would be more than %d; remove some", assign.MaxNumbers)
	case assign.NeedsParts:
		m.Error = shortened(fmt.Sprintf("parts with different ends, unlimited beside others, or a calendar, cannot be read by %s, of an older version; upgrade these first, or say the whole with one end and without a calendar", strings.Join(old, ", ")))
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
	subject, err := subjectOf(r.GetDomain(), r.GetEntries())
	if err != nil {
		return nil, err
	}
	found := a.held(subject)
	if found == nil {
		return nil, status.Errorf(codes.NotFound, "nothing is assigned to %s in the domain %q", spelling.Entries(subject.Entries), subject.Domain)
	}
	return &adminv1.GetAssignmentResponse{Assignment: showAssignment(found)}, nil
}

// ListAssignments implements adminv1.AdminServiceServer.
func (a *API) ListAssignments(ctx context.Context, r *adminv1.ListAssignmentsRequest) (*adminv1.ListAssignmentsResponse, error) {
	return collected(ctx, r, a.listAssignments, func(m *adminv1.ListAssignmentsResponse, all []*adminv1.Assignment) { m.Assignments = all })
}

func (a *API) listAssignments(_ context.Context, r *adminv1.ListAssignmentsRequest, add func(*adminv1.Assignment) error) (*adminv1.ListAssignmentsResponse, error) {
	if err := a.hasAssignments(); err != nil {
		return nil, err
	}
	maxListed, err := pageSize(r.GetPageSize(), pageDefault, maxPageSize)
	if err != nil {
		return nil, err
	}
	table := a.Assignments.Table()
	q := assign.Query{Domain: r.GetDomain(), Prefix: r.GetPrefix(), Plan: r.GetPlan(), Blocked: r.GetBlocked(), Now: a.Now().UnixMicro(), Max: maxListed, After: r.GetPageToken()}
	var failed error
	size := pageSum{}
	next, err := table.Each(q, func(found *assign.Assignment) bool {
		shown := showAssignment(found.InForce(q.Now))
		if !size.fits(shown) {
			return false
		}
		failed = add(shown)
		return failed == nil
	})
	switch {
	case failed != nil:
		return nil, failed
	case err != nil:
		return nil, endpoint.Invalid("%v", err)
	}
	return &adminv1.ListAssignmentsResponse{NextPageToken: next, Total: uint64(table.Len())}, nil
}

// DeleteAssignment implements adminv1.AdminServiceServer.
func (a *API) DeleteAssignment(ctx context.Context, r *adminv1.DeleteAssignmentRequest) (*adminv1.DeleteAssignmentResponse, error) {
	if err := a.hasAssignments(); err != nil {
		return nil, err
	}
	maxWait, err := maxWaitOf(r)
	if err != nil {
		return nil, err
	}
	change := removal(ctx, r.GetDomain(), r.GetEntries(), r.GetReason())
	change.IfMatch = r.GetIfMatch()
	if r.GetPart() != adminv1.Part_PART_UNSPECIFIED {
		change.Remove = assign.Parts{}
		if !addPart(&change.Remove, r.GetPart()) {
			return nil, endpoint.Invalid("part: found %d; allowed: %s, or none for all of it", r.GetPart(), allowedParts)
		}
	}
	if err := change.Check(); err != nil {
		return nil, endpoint.Invalid("%v", err)
	}
	applied, err := a.apply(ctx, []assign.Change{change}, maxWait)
	if err != nil {
		return nil, err
	}
	response := &adminv1.DeleteAssignmentResponse{Change: showResult(applied.Results[0], change.IfMatch, applied.Old)}
	if rules := a.Live.Rules(); rules != nil && applied.Results[0].Outcome == assign.Unchanged && applied.Results[0].Before == nil {
		response.Change.Warnings = absent(trace.NewReacher(rules, 1), &change.Assignment)
	}
	response.Pending, response.UnknownFor = a.showReached(ctx, applied.Reached)
	return response, nil
}

// removal returns the change that ends all that is assigned to a subject.
func removal(ctx context.Context, domain string, entries []*ratelimitv1.Entry, reason string) assign.Change {
	return assign.Change{Remove: assign.AllParts(), Assignment: assign.Assignment{
		Subject: assign.Subject{Domain: domain, Entries: entriesOf(entries)}, By: memberOf(ctx).Name, Reason: reason,
	}}
}
