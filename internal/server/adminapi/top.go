package adminapi

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/config/rules/trace"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	"github.com/ratelimitd/ratelimitd/internal/top"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

const (
	// topRows is how many subjects are listed unless a request says otherwise.
	topRows = 20
	// topKept is how many counts are kept while answers of daemons are added up.
	topKept = 10 * top.MaxRows
)

var (
	topKinds = map[adminv1.TopBy]top.Kind{
		adminv1.TopBy_TOP_BY_UNSPECIFIED: top.Denied, adminv1.TopBy_TOP_BY_DENIED: top.Denied, adminv1.TopBy_TOP_BY_USED: top.Used,
	}
	topWindows = map[adminv1.TopWindow]top.Window{
		adminv1.TopWindow_TOP_WINDOW_UNSPECIFIED: top.Minute, adminv1.TopWindow_TOP_WINDOW_MINUTE: top.Minute,
		adminv1.TopWindow_TOP_WINDOW_QUARTER_HOUR: top.Quarter, adminv1.TopWindow_TOP_WINDOW_HOUR: top.Hour,
	}
)

// TopBys and TopWindows are the words of queries and command lines for what is asked.
var (
	TopBys = map[string]adminv1.TopBy{
		top.Denied.String(): adminv1.TopBy_TOP_BY_DENIED, top.Used.String(): adminv1.TopBy_TOP_BY_USED,
	}
	TopWindows = map[string]adminv1.TopWindow{
		top.Minute.String():  adminv1.TopWindow_TOP_WINDOW_MINUTE,
		top.Quarter.String(): adminv1.TopWindow_TOP_WINDOW_QUARTER_HOUR,
		top.Hour.String():    adminv1.TopWindow_TOP_WINDOW_HOUR,
	}
)

// Top implements adminv1.AdminServiceServer.
func (a *API) Top(ctx context.Context, r *adminv1.TopRequest) (*adminv1.TopResponse, error) {
	q, rows, err := a.topQuestion(r)
	if err != nil {
		return nil, err
	}
	sum := a.Decider.Top(q)
	response := &adminv1.TopResponse{Daemons: 1}
	if a.AskTop != nil {
		pending, err := a.AskTop(ctx, q, func(answer top.Answer) {
			sum = sum.Plus(answer).Bounded(topKept)
			response.Daemons++
		})
		if err != nil {
			response.OthersUnknown = strings.ToValidUTF8(err.Error(), "\uFFFD")
		}
		response.Pending = a.pending(ctx, pending)
	}
	listed, floor := sum.Rows(rows)
	for i := range listed {
		response.Subjects = append(response.Subjects, showTopSubject(&listed[i]))
	}
	response.Total, response.OthersAtMost, response.Covered = sum.Total, floor, durationpb.New(sum.Span)
	return response, nil
}

// topQuestion returns what a request asks for, and how many rows.
func (a *API) topQuestion(r *adminv1.TopRequest) (q top.Question, rows int, _ error) {
	kind, ok := topKinds[r.GetBy()]
	if !ok {
		return q, 0, endpoint.Invalid("by: found %d; allowed: 0 to 2", r.GetBy())
	}
	window, ok := topWindows[r.GetWindow()]
	if !ok {
		return q, 0, endpoint.Invalid("window: found %d; allowed: 0 to 3", r.GetWindow())
	}
	rows = int(r.GetRows())
	if rows == 0 {
		rows = topRows
	}
	if rows > top.MaxRows {
		return q, 0, endpoint.Invalid("rows: found %d; allowed: 1 to %d, or 0 for %d", rows, top.MaxRows, topRows)
	}
	q = top.Question{Kind: kind, Window: window, Domain: r.GetDomain(), Rule: r.GetRule()}
	return q, rows, a.checkTop(q)
}

// checkTop returns why a question has no answer.
func (a *API) checkTop(q top.Question) error {
	rules := a.Live.Rules()
	switch {
	case !a.Decider.Tops.Keeps(q.Kind):
		return status.Error(codes.FailedPrecondition, notKept(q.Kind))
	case q.Domain == "" && q.Rule != "":
		return endpoint.Invalid("rule: found %s without a domain; allowed: both", yamlfile.Quote(q.Rule))
	case rules == nil:
		return status.Error(codes.Unavailable, "no limits are loaded yet")
	case q.Domain != "" && !rules.HasDomain(q.Domain):
		return status.Error(codes.NotFound, "domain: "+trace.NoDomain(rules, q.Domain))
	case q.Rule != "" && !a.Decider.HasRule(q.Domain, q.Rule):
		var paths []string
		all := rules.Domain(q.Domain).Rules()
		for _, rule := range all[:min(len(all), maxRulesShown)] {
			paths = append(paths, rule.Path())
		}
		return status.Errorf(codes.NotFound, "rule: found %s; the domain %s has none of this path%s", yamlfile.Quote(q.Rule), q.Domain, nearest(q.Rule, paths))
	}
	return nil
}

// notKept says why there are no counts of a kind, and what to set.
func notKept(k top.Kind) string {
	keeps := settings.TopDenied
	if k == top.Used {
		keeps = settings.TopAll
	}
	return fmt.Sprintf("this daemon does not count who had the most by %[1]s: set top.subjects: %[2]s in the settings file of each daemon (or --top-subjects %[2]s, or RATELIMITD_TOP_SUBJECTS=%[2]s) and start it again", k, keeps)
}

// showTopSubject returns a row as a message. Callers may have sent, and a cut may have
// left, what is not UTF-8.
func showTopSubject(r *top.Row) *adminv1.TopSubject {
	entries, cut := top.Entries(r.Subject)
	m := &adminv1.TopSubject{Domain: r.Domain, Rule: r.Rule, Cut: cut, Count: r.Count.Count, Error: r.Error}
	for _, e := range entries {
		m.Entries = append(m.Entries, &ratelimitv1.Entry{Key: strings.ToValidUTF8(e.Key, "\uFFFD"), Value: strings.ToValidUTF8(e.Value, "\uFFFD")})
	}
	return m
}
