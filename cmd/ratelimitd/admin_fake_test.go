package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// fakeAdmin is an admin API that keeps assignments, and does nothing else.
type fakeAdmin struct {
	adminv1.UnimplementedAdminServiceServer
	address string

	mu          sync.Mutex
	assignments map[string]*adminv1.Assignment // by domain and entries
	records     []*adminv1.AuditRecord         // the oldest first
	batches     []int                          // sizes of puts
	token       string                         // of the last call
	version     int

	// What a test sets before it begins.
	pending   []*adminv1.Daemon
	isOld     bool   // it has no PatchAssignments
	failAfter int    // batches; 0: never
	mostPuts  int    // for which an answer is not too long; 0: any
	unknown   string // the plan for which the store does not answer
	answers   int    // after so many times that it did not; 0: never
	refused   string // the plan that the store refuses
	temporary bool   // so many times as answers says, or always
	lacks     *durationpb.Duration
	maxWait   *durationpb.Duration // of the last change
}

// made is when the fake says that it made what it has.
var made = timestamppb.New(time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC))

func startFakeAdmin(t *testing.T) *fakeAdmin {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeAdmin{address: l.Addr().String(), assignments: make(map[string]*adminv1.Assignment)}
	s := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		md, _ := metadata.FromIncomingContext(ctx)
		f.token = strings.Join(md.Get("authorization"), ",")
		return next(ctx, request)
	}))
	adminv1.RegisterAdminServiceServer(s, f)
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // before it served
			t.Error(err)
		}
	})
	return f
}

// run runs a command against the fake.
func (f *fakeAdmin) run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return f.runInput(t, "", args...)
}

func (f *fakeAdmin) runInput(t *testing.T, input string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	words := append([]string{"ratelimitd", args[0], "--admin-address", f.address}, args[1:]...)
	return runWords(t, input, words...)
}

func runWords(t *testing.T, input string, words ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errOut bytes.Buffer
	err := run(t.Context(), words, strings.NewReader(input), &out, &errOut)
	var exit exitCode
	switch {
	case err == nil:
	case errors.As(err, &exit):
		code = int(exit)
	default:
		code = exitError
		fmt.Fprintln(&errOut, "ratelimitd:", err)
	}
	return out.String(), errOut.String(), code
}

func keyOf(domain string, entries []*ratelimitv1.Entry) string {
	return domain + "\x00" + formatEntries(entries)
}

func (f *fakeAdmin) PutAssignments(_ context.Context, r *adminv1.PutAssignmentsRequest) (*adminv1.PutAssignmentsResponse, error) {
	if f.failAfter > 0 && len(f.batches) >= f.failAfter {
		return nil, status.Error(codes.Unavailable, "the store does not answer")
	}
	if f.mostPuts > 0 && len(r.GetPuts()) > f.mostPuts {
		return nil, status.Error(codes.ResourceExhausted, "put fewer at once")
	}
	f.batches = append(f.batches, len(r.GetPuts()))
	f.maxWait = r.GetMaxWait()
	response := &adminv1.PutAssignmentsResponse{Pending: f.pending, UnknownFor: f.lacks}
	for _, put := range r.GetPuts() {
		change := changeOf(put.GetAssignment())
		change.Remove.Rest = change.Assignment.HasMore()
		response.Changes = append(response.Changes, f.change(change, r.GetDryRun()))
	}
	return response, nil
}

func (f *fakeAdmin) PatchAssignments(_ context.Context, r *adminv1.PatchAssignmentsRequest) (*adminv1.PatchAssignmentsResponse, error) {
	if f.isOld {
		return nil, status.Error(codes.Unimplemented, "unknown method /ratelimit.admin.v1.AdminService/PatchAssignments")
	}
	if f.failAfter > 0 && len(f.batches) >= f.failAfter {
		return nil, status.Error(codes.Unavailable, "the store does not answer")
	}
	if f.mostPuts > 0 && len(r.GetPatches()) > f.mostPuts {
		return nil, status.Error(codes.ResourceExhausted, "put fewer at once")
	}
	f.batches = append(f.batches, len(r.GetPatches()))
	f.maxWait = r.GetMaxWait()
	response := &adminv1.PatchAssignmentsResponse{Pending: f.pending, UnknownFor: f.lacks}
	for _, patch := range r.GetPatches() {
		change := changeOf(patch.GetAssignment())
		change.Remove.Limits = patch.GetRemoveLimits()
		for _, part := range patch.GetRemove() {
			addPart(&change.Remove, part)
		}
		response.Changes = append(response.Changes, f.change(change, r.GetDryRun()))
	}
	return response, nil
}

func addPart(to *assign.Parts, part adminv1.Part) {
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
	default:
		*to = assign.AllParts()
	}
}

func changeOf(a *adminv1.Assignment) assign.Change {
	own, err := assignmentOf(a)
	if err != nil {
		panic(err)
	}
	return assign.Change{Assignment: own}
}

// change makes a change as a store does.
func (f *fakeAdmin) change(c assign.Change, dryRun bool) *adminv1.AssignmentChange {
	switch plan := c.Assignment.Plan; {
	case plan == "none-such":
		return &adminv1.AssignmentChange{Outcome: adminv1.ChangeOutcome_CHANGE_OUTCOME_REFUSED, Error: "plan: found none-such; allowed: free, pro"}
	case f.unknown != "" && plan == f.unknown:
		if f.answers--; f.answers == 0 {
			f.unknown = ""
		}
		return &adminv1.AssignmentChange{Outcome: adminv1.ChangeOutcome_CHANGE_OUTCOME_UNKNOWN}
	case f.refused != "" && plan == f.refused:
		if f.answers--; f.answers == 0 {
			f.refused = ""
		}
		return &adminv1.AssignmentChange{
			Outcome: adminv1.ChangeOutcome_CHANGE_OUTCOME_FAILED, Error: "refused by Redis, nothing was changed: READONLY You can't write", Temporary: f.temporary,
		}
	}
	entries := make([]*ratelimitv1.Entry, len(c.Assignment.Entries))
	for i, e := range c.Assignment.Entries {
		entries[i] = &ratelimitv1.Entry{Key: e.Key, Value: e.Value}
	}
	key := keyOf(c.Assignment.Domain, entries)
	var held *assign.Assignment
	if shown := f.assignments[key]; shown != nil {
		own := changeOf(shown).Assignment.Canonical()
		held = &own
	}
	_, after, outcome := c.Apply(held, made.AsTime().UnixMicro())
	change := &adminv1.AssignmentChange{Before: f.assignments[key], After: shown(after, entries)}
	kind := adminv1.AuditKind_AUDIT_KIND_ASSIGNED
	switch outcome {
	case assign.Created:
		change.Outcome = adminv1.ChangeOutcome_CHANGE_OUTCOME_CREATED
	case assign.Replaced:
		change.Outcome = adminv1.ChangeOutcome_CHANGE_OUTCOME_REPLACED
	case assign.Deleted:
		change.Outcome, kind = adminv1.ChangeOutcome_CHANGE_OUTCOME_DELETED, adminv1.AuditKind_AUDIT_KIND_UNASSIGNED
	default:
		change.Outcome, change.After = adminv1.ChangeOutcome_CHANGE_OUTCOME_UNCHANGED, change.Before
		return change
	}
	f.version++
	if after != nil {
		change.After.MadeBy, change.After.MadeAt, change.After.Etag = "ops", made, fmt.Sprint(f.version)
	}
	if dryRun {
		return change
	}
	f.assignments[key] = change.After
	if after == nil {
		delete(f.assignments, key)
	}
	f.record(kind, c.Assignment.Domain, entries, change, c.Assignment.Reason)
	return change
}

// shown returns an assignment as a daemon shows it.
func shown(a *assign.Assignment, entries []*ratelimitv1.Entry) *adminv1.Assignment {
	if a == nil {
		return nil
	}
	end := func(micros int64) *timestamppb.Timestamp {
		if micros == 0 {
			return nil
		}
		return timestamppb.New(time.UnixMicro(micros))
	}
	m := &adminv1.Assignment{
		Domain: a.Domain, Entries: entries, Plan: a.Plan, Unlimited: a.Unlimited, Blocked: a.Blocked, Reason: a.Reason,
		PlanUntil: end(a.PlanUntil), UnlimitedUntil: end(a.UnlimitedUntil), BlockedUntil: end(a.BlockedUntil),
	}
	until, _ := a.Until()
	m.Until = end(until)
	for i, n := range a.Numbers {
		numbers := &adminv1.AssignedNumbers{Limit: n.Limit, Requests: uint32(n.Requests), Burst: uint32(n.Burst), Until: end(a.NumbersEnd(i))}
		if n.Period != 0 {
			numbers.Period = durationpb.New(n.Period)
		}
		m.Numbers = append(m.Numbers, numbers)
	}
	return m
}

func (f *fakeAdmin) record(kind adminv1.AuditKind, domain string, entries []*ratelimitv1.Entry, c *adminv1.AssignmentChange, reason string) {
	f.records = append(f.records, &adminv1.AuditRecord{
		Id: fmt.Sprint(len(f.records)), Time: made, MadeBy: "ops", Kind: kind, Domain: domain, Entries: entries,
		Before: c.GetBefore(), After: c.GetAfter(), Reason: reason,
	})
}

func (f *fakeAdmin) GetAssignment(_ context.Context, r *adminv1.GetAssignmentRequest) (*adminv1.GetAssignmentResponse, error) {
	a := f.assignments[keyOf(r.GetDomain(), r.GetEntries())]
	if a == nil {
		return nil, status.Error(codes.NotFound, "nothing is assigned")
	}
	return &adminv1.GetAssignmentResponse{Assignment: a}, nil
}

func (f *fakeAdmin) DeleteAssignment(_ context.Context, r *adminv1.DeleteAssignmentRequest) (*adminv1.DeleteAssignmentResponse, error) {
	change := changeOf(&adminv1.Assignment{Domain: r.GetDomain(), Entries: r.GetEntries(), Reason: r.GetReason()})
	addPart(&change.Remove, r.GetPart())
	f.maxWait = r.GetMaxWait()
	return &adminv1.DeleteAssignmentResponse{Change: f.change(change, false), Pending: f.pending, UnknownFor: f.lacks}, nil
}

func (f *fakeAdmin) ListAssignments(_ context.Context, r *adminv1.ListAssignmentsRequest) (*adminv1.ListAssignmentsResponse, error) {
	const page = 3
	var all []*adminv1.Assignment
	for _, a := range f.assignments {
		if (r.GetDomain() == "" || a.GetDomain() == r.GetDomain()) && (r.GetPlan() == "" || a.GetPlan() == r.GetPlan()) && (a.GetBlocked() || !r.GetBlocked()) {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b *adminv1.Assignment) int {
		return cmp.Compare(fmt.Sprintf("%q", keyOf(a.GetDomain(), a.GetEntries())), fmt.Sprintf("%q", keyOf(b.GetDomain(), b.GetEntries())))
	})
	// A token is the last key of a page, so that changes meanwhile move no page.
	all = slices.DeleteFunc(all, func(a *adminv1.Assignment) bool {
		return fmt.Sprintf("%q", keyOf(a.GetDomain(), a.GetEntries())) <= r.GetPageToken()
	})
	response := &adminv1.ListAssignmentsResponse{Assignments: all[:min(page, len(all))], Total: uint64(len(f.assignments))}
	if len(all) > page {
		last := all[page-1]
		response.NextPageToken = fmt.Sprintf("%q", keyOf(last.GetDomain(), last.GetEntries()))
	}
	return response, nil
}

func (f *fakeAdmin) ListAudit(_ context.Context, r *adminv1.ListAuditRequest) (*adminv1.ListAuditResponse, error) {
	response := &adminv1.ListAuditResponse{}
	for _, record := range slices.Backward(f.records) {
		if r.GetDomain() == "" || record.GetDomain() == r.GetDomain() {
			response.Records = append(response.Records, record)
		}
	}
	return response, nil
}

func (f *fakeAdmin) ListDomains(context.Context, *adminv1.ListDomainsRequest) (*adminv1.ListDomainsResponse, error) {
	return &adminv1.ListDomainsResponse{Domains: []*adminv1.Domain{{Name: "api", Keys: []string{"tenant", "user"}}, {Name: "login", Keys: []string{"account"}}}}, nil
}

func (f *fakeAdmin) GetRule(_ context.Context, r *adminv1.GetRuleRequest) (*adminv1.GetRuleResponse, error) {
	return &adminv1.GetRuleResponse{Rules: []*adminv1.Rule{
		{Domain: r.GetDomain(), Path: "tenant", Plans: []*adminv1.Plan{{Name: "pro", Limits: []*adminv1.RuleLimit{{Name: "month"}, {Name: "day"}}}, {Name: "free", Limits: []*adminv1.RuleLimit{{Name: "month"}, {}}}}},
		{Domain: r.GetDomain(), Path: "tenant / user", Plans: []*adminv1.Plan{{Name: "pro"}}},
	}}, nil
}

func (f *fakeAdmin) Inspect(_ context.Context, r *adminv1.InspectRequest) (*adminv1.InspectResponse, error) {
	return &adminv1.InspectResponse{Descriptor_: &adminv1.ExplainedDescriptor{
		Entries: r.GetEntries(), Rule: &adminv1.Rule{Domain: r.GetDomain(), Path: "tenant", Place: &adminv1.Place{File: "limits.yaml", Line: 3}}, Plan: "pro",
		Limits: []*adminv1.ExplainedLimit{
			{
				Limit: &adminv1.RuleLimit{Name: "day", Text: "250 at once, then about one every 5m 46s", Capacity: 250}, Key: "k",
				RetryAfter: durationpb.New(90 * time.Second), Source: adminv1.Source_SOURCE_ASSIGNMENT,
			},
			{
				Limit: &adminv1.RuleLimit{Text: "10 at once, then 10 a second", Capacity: 10}, Key: "k2",
				Remaining: 9, Allowed: true, ResetAfter: durationpb.New(100 * time.Millisecond),
			},
		},
		Verdict: adminv1.Verdict_VERDICT_DENIED,
	}}, nil
}

func (f *fakeAdmin) Explain(_ context.Context, r *adminv1.ExplainRequest) (*adminv1.ExplainResponse, error) {
	response := &adminv1.ExplainResponse{Allowed: true, Summary: "It would pass."}
	for _, d := range r.GetTake().GetDescriptors() {
		response.Descriptors = append(response.Descriptors, &adminv1.ExplainedDescriptor{Entries: d.GetEntries(), Verdict: adminv1.Verdict_VERDICT_ALLOWED})
	}
	return response, nil
}

func (f *fakeAdmin) Reset(_ context.Context, r *adminv1.ResetRequest) (*adminv1.ResetResponse, error) {
	limits := []string{"day", ""}
	if r.Limit != nil {
		limits = []string{r.GetLimit()}
	}
	f.maxWait = r.GetMaxWait()
	return &adminv1.ResetResponse{Limits: limits, Pending: f.pending, UnknownFor: f.lacks}, nil
}

// writeText writes a file of the test, and returns its name.
func writeText(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
