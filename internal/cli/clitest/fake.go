package clitest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/server/assignmsg"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// Commands show times in the shell's zone; tests fix it.
func init() { time.Local = time.UTC }

// FakeAdmin is an admin API that keeps assignments and does nothing else.
type FakeAdmin struct {
	adminv1.UnimplementedAdminServiceServer
	Address string

	mu          sync.Mutex
	Assignments map[string]*adminv1.Assignment // by domain and entries
	held        map[string]*assign.Assignment  // the same
	records     []assign.Record                // oldest first
	Batches     []int                          // sizes of puts
	Token       string                         // of the last call

	// What a test sets before it begins.
	Pending   []*adminv1.Daemon // that do not answer Top
	FailAfter int               // batches; 0: never
	Unknown   string            // the plan for which the store does not answer
	Refused   string            // the plan that the store refuses
}

// made is when the fake claims to have made what it has.
var made = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

// StartFakeAdmin starts a FakeAdmin, which stops at the end of the test.
func StartFakeAdmin(t *testing.T) *FakeAdmin {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &FakeAdmin{Address: l.Addr().String(), Assignments: make(map[string]*adminv1.Assignment), held: make(map[string]*assign.Assignment)}
	s := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		md, _ := metadata.FromIncomingContext(ctx)
		f.Token = strings.Join(md.Get("authorization"), ",")
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

// Run runs a command against the fake: args without the program's name.
func (f *FakeAdmin) Run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return f.RunInput(t, "", args...)
}

// RunInput is Run with standard input.
func (f *FakeAdmin) RunInput(t *testing.T, input string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	words := append([]string{"ratelimitd", args[0], "--admin-address", f.Address}, args[1:]...)
	return Run(t, input, words...)
}

// KeyOf returns the key of a subject in Assignments.
func KeyOf(domain string, entries []*ratelimitv1.Entry) string {
	return domain + "\x00" + assigntext.FormatEntries(entries)
}

func (f *FakeAdmin) PutAssignments(_ context.Context, r *adminv1.PutAssignmentsRequest) (*adminv1.PutAssignmentsResponse, error) {
	if err := f.begin(len(r.GetPuts())); err != nil {
		return nil, err
	}
	response := &adminv1.PutAssignmentsResponse{}
	for _, put := range r.GetPuts() {
		response.Changes = append(response.Changes, f.change(must(assignmsg.Put(put, made)), r.GetDryRun()))
	}
	return response, nil
}

func (f *FakeAdmin) PatchAssignments(_ context.Context, r *adminv1.PatchAssignmentsRequest) (*adminv1.PatchAssignmentsResponse, error) {
	if err := f.begin(len(r.GetPatches())); err != nil {
		return nil, err
	}
	response := &adminv1.PatchAssignmentsResponse{}
	for _, patch := range r.GetPatches() {
		response.Changes = append(response.Changes, f.change(must(assignmsg.Patch(patch, made)), r.GetDryRun()))
	}
	return response, nil
}

// begin begins a batch of changes, or fails it.
func (f *FakeAdmin) begin(changes int) error {
	if f.FailAfter > 0 && len(f.Batches) >= f.FailAfter {
		return status.Error(codes.Unavailable, "the store does not answer")
	}
	f.Batches = append(f.Batches, changes)
	return nil
}

func must(c assign.Change, err error) assign.Change {
	if err != nil {
		panic(err)
	}
	return c
}

// change makes a change as a store does.
func (f *FakeAdmin) change(c assign.Change, dryRun bool) *adminv1.AssignmentChange {
	for i := range c.Set {
		c.Set[i].By = "ops"
		switch plan := c.Set[i].Plan; {
		case plan == "none-such":
			return &adminv1.AssignmentChange{Outcome: adminv1.ChangeOutcome_CHANGE_OUTCOME_REFUSED, Error: "plan: found none-such; allowed: free, pro"}
		case f.Unknown != "" && plan == f.Unknown:
			return &adminv1.AssignmentChange{Outcome: adminv1.ChangeOutcome_CHANGE_OUTCOME_UNKNOWN}
		case f.Refused != "" && plan == f.Refused:
			return &adminv1.AssignmentChange{Outcome: adminv1.ChangeOutcome_CHANGE_OUTCOME_FAILED, Error: "refused by Redis, nothing was changed: READONLY You can't write"}
		}
	}
	key := KeyOf(c.Domain, assignmsg.ShowEntries(c.Entries))
	c.By = "ops"
	before, after, outcome := c.Apply(f.held[key], made.UnixMicro())
	answer := &adminv1.AssignmentChange{Before: assignmsg.Show(before), After: assignmsg.Show(after)}
	switch outcome {
	case assign.Created:
		answer.Outcome = adminv1.ChangeOutcome_CHANGE_OUTCOME_CREATED
	case assign.Replaced:
		answer.Outcome = adminv1.ChangeOutcome_CHANGE_OUTCOME_REPLACED
	case assign.Deleted:
		answer.Outcome = adminv1.ChangeOutcome_CHANGE_OUTCOME_DELETED
	case assign.Conflict:
		answer.Outcome, answer.Error = adminv1.ChangeOutcome_CHANGE_OUTCOME_CONFLICT, "the version that if_match names is not in force"
		return answer
	default:
		answer.Outcome = adminv1.ChangeOutcome_CHANGE_OUTCOME_UNCHANGED
		return answer
	}
	if dryRun {
		return answer
	}
	record := c.Record(before, after)
	record.ID, record.Moment = fmt.Sprint(len(f.records)+1), made.UnixMicro()
	f.records = append(f.records, record)
	if after == nil {
		delete(f.held, key)
		delete(f.Assignments, key)
		return answer
	}
	after.Stamp(record.ID, record.Moment)
	answer.After = assignmsg.Show(after)
	f.held[key], f.Assignments[key] = after, answer.After
	return answer
}

func (f *FakeAdmin) UndoAssignment(_ context.Context, r *adminv1.UndoAssignmentRequest) (*adminv1.UndoAssignmentResponse, error) {
	q := assign.RecordQuery{Domain: r.GetDomain(), Entries: assignmsg.Entries(r.GetEntries())}
	for i := range slices.Backward(f.records) {
		record := f.records[i]
		if !q.Selects(&record) {
			continue
		}
		c, err := assign.Undo(record)
		if err != nil {
			return nil, status.Error(codes.FailedPrecondition, err.Error())
		}
		c.Reason = r.GetReason()
		return &adminv1.UndoAssignmentResponse{Change: f.change(c, r.GetDryRun()), Undone: assignmsg.ShowRecord(&record)}, nil
	}
	return nil, status.Error(codes.FailedPrecondition, "there is no record of a change, so there is none to undo")
}

func (f *FakeAdmin) ListAssignments(_ context.Context, r *adminv1.ListAssignmentsRequest) (*adminv1.ListAssignmentsResponse, error) {
	const page = 3
	var all []*adminv1.Assignment
	for _, a := range f.Assignments {
		if (r.GetDomain() == "" || a.GetDomain() == r.GetDomain()) && (r.GetPlan() == "" || a.GetPlan() == r.GetPlan()) && (a.GetBlocked() || !r.GetBlocked()) {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b *adminv1.Assignment) int {
		return cmp.Compare(fmt.Sprintf("%q", KeyOf(a.GetDomain(), a.GetEntries())), fmt.Sprintf("%q", KeyOf(b.GetDomain(), b.GetEntries())))
	})
	// A token is the last key of a page, so that concurrent changes move no page.
	all = slices.DeleteFunc(all, func(a *adminv1.Assignment) bool {
		return fmt.Sprintf("%q", KeyOf(a.GetDomain(), a.GetEntries())) <= r.GetPageToken()
	})
	response := &adminv1.ListAssignmentsResponse{Assignments: all[:min(page, len(all))], Total: uint64(len(f.Assignments))}
	if len(all) > page {
		last := all[page-1]
		response.NextPageToken = fmt.Sprintf("%q", KeyOf(last.GetDomain(), last.GetEntries()))
	}
	return response, nil
}

func (f *FakeAdmin) ListAudit(_ context.Context, r *adminv1.ListAuditRequest) (*adminv1.ListAuditResponse, error) {
	response := &adminv1.ListAuditResponse{}
	for _, record := range slices.Backward(f.records) {
		if r.GetDomain() == "" || record.Domain == r.GetDomain() {
			response.Records = append(response.Records, assignmsg.ShowRecord(&record))
		}
	}
	return response, nil
}

func (f *FakeAdmin) ListDomains(context.Context, *adminv1.ListDomainsRequest) (*adminv1.ListDomainsResponse, error) {
	return &adminv1.ListDomainsResponse{Domains: []*adminv1.Domain{{Name: "api", Keys: []string{"tenant", "user"}}, {Name: "login", Keys: []string{"account"}}}}, nil
}

// Top answers what a test set.
func (f *FakeAdmin) Top(context.Context, *adminv1.TopRequest) (*adminv1.TopResponse, error) {
	return &adminv1.TopResponse{
		Subjects: []*adminv1.TopSubject{{Domain: "api", Rule: "user", Count: 5, Error: 1, Cut: true, Entries: []*ratelimitv1.Entry{{Key: "user", Value: "\x1b[2Ja,b"}}}},
		Total:    50, OthersAtMost: 4, Daemons: 2, Pending: f.Pending,
	}, nil
}

// Make makes an assignment.
func (f *FakeAdmin) Make(t *testing.T, a *adminv1.Assignment) {
	t.Helper()
	switch c := f.change(must(assignmsg.Patch(&adminv1.AssignmentPatch{Assignment: a}, made)), false); c.GetOutcome() {
	case adminv1.ChangeOutcome_CHANGE_OUTCOME_CREATED, adminv1.ChangeOutcome_CHANGE_OUTCOME_REPLACED:
	default:
		t.Fatal(c)
	}
}
