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
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

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
	failAfter int    // batches; 0: never
	mostPuts  int    // for which an answer is not too long; 0: any
	unknown   string // the plan for which the store does not answer
	answers   int    // after so many times that it did not; 0: never
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
		if err := <-served; err != nil {
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
	response := &adminv1.PutAssignmentsResponse{Pending: f.pending}
	for _, put := range r.GetPuts() {
		response.Changes = append(response.Changes, f.put(f.whole(put.GetAssignment(), partOf(put.GetAssignment())), r.GetDryRun()))
	}
	return response, nil
}

// partOf returns the part that an assignment says something of.
func partOf(a *adminv1.Assignment) adminv1.Part {
	switch {
	case !a.GetBlocked():
		return adminv1.Part_PART_TERMS
	case a.GetPlan() == "" && !a.GetUnlimited() && len(a.GetNumbers()) == 0:
		return adminv1.Part_PART_BLOCK
	}
	return adminv1.Part_PART_UNSPECIFIED
}

// whole returns an assignment with the part of the one in force that is to stay.
func (f *fakeAdmin) whole(a *adminv1.Assignment, part adminv1.Part) *adminv1.Assignment {
	a = proto.CloneOf(a)
	if a.GetBlocked() && a.BlockedUntil == nil && a.GetPlan() == "" && !a.GetUnlimited() && len(a.GetNumbers()) == 0 {
		a.Until, a.BlockedUntil = nil, a.Until
	}
	held := f.assignments[keyOf(a.GetDomain(), a.GetEntries())]
	switch {
	case held == nil:
	case part == adminv1.Part_PART_BLOCK:
		a.Plan, a.Numbers, a.Unlimited, a.Until = held.GetPlan(), held.GetNumbers(), held.GetUnlimited(), held.Until
	case part == adminv1.Part_PART_TERMS:
		a.Blocked, a.BlockedUntil = held.GetBlocked(), held.BlockedUntil
	}
	return a
}

func (f *fakeAdmin) put(a *adminv1.Assignment, dryRun bool) *adminv1.AssignmentChange {
	if a.GetPlan() == "none-such" {
		return &adminv1.AssignmentChange{Outcome: adminv1.ChangeOutcome_CHANGE_OUTCOME_REFUSED, Error: "plan: found none-such; allowed: free, pro"}
	}
	if f.unknown != "" && a.GetPlan() == f.unknown {
		if f.answers--; f.answers == 0 {
			f.unknown = ""
		}
		return &adminv1.AssignmentChange{Outcome: adminv1.ChangeOutcome_CHANGE_OUTCOME_UNKNOWN}
	}
	key := keyOf(a.GetDomain(), a.GetEntries())
	before := f.assignments[key]
	change := &adminv1.AssignmentChange{Outcome: adminv1.ChangeOutcome_CHANGE_OUTCOME_CREATED, Before: before}
	switch {
	case before == nil:
	case proto.Equal(settable(before), a):
		change.Outcome, change.After = adminv1.ChangeOutcome_CHANGE_OUTCOME_UNCHANGED, before
		return change
	default:
		change.Outcome = adminv1.ChangeOutcome_CHANGE_OUTCOME_REPLACED
	}
	after := proto.CloneOf(a)
	f.version++
	after.MadeBy, after.MadeAt, after.Etag = "ops", made, fmt.Sprint(f.version)
	change.After = after
	if !dryRun {
		f.assignments[key] = after
		f.record(adminv1.AuditKind_AUDIT_KIND_ASSIGNED, a.GetDomain(), a.GetEntries(), change, a.GetReason())
	}
	return change
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
	key := keyOf(r.GetDomain(), r.GetEntries())
	if left := f.whole(&adminv1.Assignment{Domain: r.GetDomain(), Entries: r.GetEntries()}, r.GetPart()); left.GetBlocked() || left.GetPlan() != "" || left.GetUnlimited() || len(left.GetNumbers()) > 0 {
		left.Reason = f.assignments[key].GetReason()
		return &adminv1.DeleteAssignmentResponse{Change: f.put(left, false), Pending: f.pending}, nil
	}
	c := &adminv1.AssignmentChange{Outcome: adminv1.ChangeOutcome_CHANGE_OUTCOME_UNCHANGED, Before: f.assignments[key]}
	if c.Before != nil {
		c.Outcome = adminv1.ChangeOutcome_CHANGE_OUTCOME_DELETED
		delete(f.assignments, key)
		f.record(adminv1.AuditKind_AUDIT_KIND_UNASSIGNED, r.GetDomain(), r.GetEntries(), c, r.GetReason())
	}
	return &adminv1.DeleteAssignmentResponse{Change: c, Pending: f.pending}, nil
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
		return cmp.Compare(keyOf(a.GetDomain(), a.GetEntries()), keyOf(b.GetDomain(), b.GetEntries()))
	})
	from := 0
	if r.GetPageToken() != "" {
		fmt.Sscan(r.GetPageToken(), &from)
	}
	response := &adminv1.ListAssignmentsResponse{Assignments: all[from:min(from+page, len(all))], Total: uint64(len(all))}
	if from+page < len(all) {
		response.NextPageToken = fmt.Sprint(from + page)
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
				Limit: &adminv1.RuleLimit{Name: "day", Text: "250 requests a day", Capacity: 250}, Key: "k",
				RetryAfter: durationpb.New(90 * time.Second), Source: adminv1.Source_SOURCE_ASSIGNMENT,
			},
			{
				Limit: &adminv1.RuleLimit{Text: "10 requests a second", Capacity: 10}, Key: "k2",
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
	return &adminv1.ResetResponse{Limits: limits, Pending: f.pending}, nil
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
