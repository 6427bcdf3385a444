package adminapi

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/server/assignmsg"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// One assignment is a resource, which the query names. Its version is in the header
// ETag, and If-Match and If-None-Match say which version a change is for.

func readGetAssignment(_ http.ResponseWriter, r *http.Request) (*adminv1.GetAssignmentRequest, error) {
	q := readQuery(r, "domain", "entry")
	return &adminv1.GetAssignmentRequest{Domain: q.text("domain"), Entries: q.entries()}, q.err
}

func writeAssignment(w http.ResponseWriter, response *adminv1.GetAssignmentResponse) {
	setETag(w, response.GetAssignment())
	writeMessage(w, http.StatusOK, response.GetAssignment())
}

func setETag(w http.ResponseWriter, m *adminv1.Assignment) {
	if m.GetEtag() != "" {
		w.Header().Set("ETag", `"`+m.GetEtag()+`"`)
	}
}

// ifMatch returns the version that a change is for, as if_match has it.
func ifMatch(r *http.Request) (string, error) {
	match, none := r.Header.Values("If-Match"), r.Header.Values("If-None-Match")
	switch {
	case len(match)+len(none) == 0:
		return "", nil
	case len(match)+len(none) > 1:
		return "", endpoint.Invalid("if-match, if-none-match: found %d; allowed: one of them", len(match)+len(none))
	case len(none) == 1 && none[0] == "*":
		return assign.IfNone, nil
	case len(none) == 1:
		return "", endpoint.Invalid(`if-none-match: found %.100q; allowed: *, which is: only if there is none`, none[0])
	}
	etag, ok := strings.CutPrefix(match[0], `"`)
	etag, ended := strings.CutSuffix(etag, `"`)
	if !ok || !ended || etag == "" || etag == assign.IfNone || strings.Contains(etag, `"`) {
		return "", endpoint.Invalid(`if-match: found %.100q; allowed: the etag of one version, in double quotes`, match[0])
	}
	return etag, nil
}

// changeOne makes one change by a method, and fails if the change was not made.
func changeOne[Q any, A any, M interface {
	*A
	proto.Message
	GetChanges() []*adminv1.AssignmentChange
}](a *API, method string, read reader[Q], answer func(context.Context, *Q) (*A, error)) http.HandlerFunc {
	return asked(a, method, read, func(ctx context.Context, q *Q) (*A, error) {
		response, err := answer(ctx, q)
		if err == nil {
			err = failureOf(M(response).GetChanges()[0])
		}
		return response, err
	}, func(w http.ResponseWriter, response *A) {
		change := M(response).GetChanges()[0]
		setETag(w, change.GetAfter())
		code := http.StatusOK
		if change.GetOutcome() == adminv1.ChangeOutcome_CHANGE_OUTCOME_CREATED {
			code = http.StatusCreated
		}
		writeMessage(w, code, M(response))
	})
}

func readPutAssignment(w http.ResponseWriter, r *http.Request) (*adminv1.PutAssignmentsRequest, error) {
	q := readQuery(r, "domain", "entry", "dry_run", "strict")
	request := &adminv1.PutAssignmentsRequest{DryRun: q.flag("dry_run"), Strict: q.flag("strict")}
	asked, match, err := readOne(w, r, q)
	request.Puts = []*adminv1.PutAssignment{{Assignment: asked, IfMatch: match}}
	return request, err
}

func readPatchAssignment(w http.ResponseWriter, r *http.Request) (*adminv1.PatchAssignmentsRequest, error) {
	q := readQuery(r, "domain", "entry", "dry_run", "strict", "remove", "remove_limit")
	request := &adminv1.PatchAssignmentsRequest{DryRun: q.flag("dry_run"), Strict: q.flag("strict")}
	patch := &adminv1.AssignmentPatch{Remove: q.parts("remove"), RemoveLimits: q.values["remove_limit"]}
	asked, match, err := readOne(w, r, q)
	patch.Assignment, patch.IfMatch = asked, match
	request.Patches = []*adminv1.AssignmentPatch{patch}
	return request, err
}

// readOne reads the assignment of a body, whose subject the query names, and the version
// that a change is for.
func readOne(w http.ResponseWriter, r *http.Request, q *query) (asked *adminv1.Assignment, match string, err error) {
	entries := q.entries()
	if q.err != nil {
		return nil, "", q.err
	}
	if match, err = ifMatch(r); err != nil {
		return nil, "", err
	}
	if asked, err = readBody[adminv1.Assignment](w, r); err != nil {
		return nil, "", err
	}
	return asked, match, nameSubject(asked, q.text("domain"), entries)
}

// nameSubject gives an assignment the subject of the query, which that of the body
// must equal if it has one.
func nameSubject(m *adminv1.Assignment, domain string, entries []*ratelimitv1.Entry) error {
	same := (m.GetDomain() == "" || m.GetDomain() == domain) &&
		(len(m.GetEntries()) == 0 || slices.Equal(assignmsg.Entries(m.GetEntries()), assignmsg.Entries(entries)))
	if !same {
		return endpoint.Invalid("the body: found other domain or entries than in the query; allowed: the same, or none")
	}
	m.Domain, m.Entries = domain, entries
	return nil
}

// failureOf returns the error of a change that was not made, or nil.
func failureOf(c *adminv1.AssignmentChange) error {
	switch c.GetOutcome() {
	case adminv1.ChangeOutcome_CHANGE_OUTCOME_CONFLICT:
		return status.Error(codes.FailedPrecondition, c.GetError())
	case adminv1.ChangeOutcome_CHANGE_OUTCOME_REFUSED:
		text := c.GetError()
		if len(c.GetWarnings()) > 1 { // the first is the error
			text = withHints(text, c.GetWarnings()[1:])
		}
		return status.Error(codes.InvalidArgument, text)
	case adminv1.ChangeOutcome_CHANGE_OUTCOME_UNKNOWN, adminv1.ChangeOutcome_CHANGE_OUTCOME_FAILED:
		return status.Error(codes.Unavailable, c.GetError())
	}
	return nil
}

func readDeleteAssignment(_ http.ResponseWriter, r *http.Request) (*adminv1.DeleteAssignmentRequest, error) {
	q := readQuery(r, "domain", "entry", "reason", "part")
	match, err := ifMatch(r)
	if q.err == nil {
		q.err = err
	}
	return &adminv1.DeleteAssignmentRequest{
		Domain: q.text("domain"), Entries: q.entries(), IfMatch: match, Reason: q.text("reason"), Part: choice(q, "part", parts),
	}, q.err
}

// deleteOne is DeleteAssignment, but fails if the change was not made.
func (a *API) deleteOne(ctx context.Context, q *adminv1.DeleteAssignmentRequest) (*adminv1.DeleteAssignmentResponse, error) {
	response, err := a.DeleteAssignment(ctx, q)
	if err == nil {
		err = failureOf(response.GetChange())
	}
	return response, err
}

// undoOne is UndoAssignment, but fails if the change was not taken back.
func (a *API) undoOne(ctx context.Context, q *adminv1.UndoAssignmentRequest) (*adminv1.UndoAssignmentResponse, error) {
	response, err := a.UndoAssignment(ctx, q)
	if err == nil {
		err = failureOf(response.GetChange())
	}
	return response, err
}

// getWatch is WatchAssignments: a record on each line, until the caller goes. An
// error after the first line is the last one.
func (a *API) getWatch(w http.ResponseWriter, r *http.Request) {
	begun := false
	response := http.NewResponseController(w)
	err := a.do(r.Context(), "WatchAssignments", func() error {
		q := readQuery(r, "domain")
		if q.err != nil {
			return q.err
		}
		if r.ContentLength != 0 {
			// Over HTTP/1 the end of the connection is not seen while a body is unread.
			return endpoint.Invalid("the body: found one; allowed: none")
		}
		begin := func() error {
			begun = true
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(http.StatusOK)
			return response.Flush()
		}
		return a.watch(r.Context(), q.text("domain"), begin, func(m *adminv1.WatchAssignmentsResponse) error {
			line, err := appendCompact(nil, m.GetRecord())
			if err != nil {
				return err
			}
			if _, err := w.Write(append(line, '\n')); err != nil {
				return err
			}
			return response.Flush()
		})
	})
	switch {
	case err == nil:
	case begun:
		endpoint.AppendError(w, status.Convert(err).Message())
	default:
		writeStatus(w, err)
	}
}
