package adminapi

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/server/pages"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// right is what a method needs, as the comments of the service say.
type right struct {
	role access.Role
	// all is the role that may do all of it, if those below may do a part.
	all access.Role
	// does says in plain words what the method does. Users of the command line know no
	// methods.
	does string
	// changes is whether it changes something, and isLong whether its answer may be
	// megabytes.
	changes, isLong bool
	// local lets local callers call it too: it changes nothing, and shows only
	// the subjects that it is asked for.
	local bool
}

var rights = map[string]right{
	"ListDomains":      {role: access.Viewer, does: "list domains", isLong: true},
	"GetRule":          {role: access.Viewer, does: "see rules", isLong: true},
	"Explain":          {role: access.Support, does: "explain", isLong: true, local: true},
	"Inspect":          {role: access.Support, does: "inspect", isLong: true, local: true},
	"Reset":            {role: access.Support, does: "reset", changes: true},
	"PutAssignments":   {role: access.Operator, does: "assign or block", changes: true},
	"PatchAssignments": {role: access.Support, all: access.Operator, does: "change assignments", changes: true}, // a part: see mayRelieve
	"GetAssignment":    {role: access.Viewer, does: "see assignments"},
	"ListAssignments":  {role: access.Viewer, does: "see assignments", isLong: true},
	"DeleteAssignment": {role: access.Operator, does: "end an assignment or a block", changes: true},
	"UndoAssignment":   {role: access.Operator, does: "undo a change of an assignment", changes: true},
	"WatchAssignments": {role: access.Viewer, does: "watch assignments"},
	"ListDaemons":      {role: access.Viewer, does: "list daemons"},
	"ListAudit":        {role: access.Viewer, does: "read the audit", isLong: true},
	"Top":              {role: access.Support, does: "see who is over"},
}

// other is the name by which methods outside the service are counted: those of
// reflection, and unknown ones.
const other = "other"

// countFromZero makes the counters of each method begin at 0, so that the first refusal
// is an increase.
func countFromZero(requests *prometheus.CounterVec) {
	for method := range rights {
		for _, code := range []codes.Code{codes.OK, codes.Unauthenticated, codes.PermissionDenied} {
			requests.WithLabelValues(method, code.String())
		}
	}
}

// methodOf returns the method of a full name, or other.
func methodOf(fullName string) string {
	name, ok := strings.CutPrefix(fullName, "/"+adminv1.AdminService_ServiceDesc.ServiceName+"/")
	if _, known := rights[name]; ok && known {
		return name
	}
	return other
}

// do answers a method if its caller may call it, and counts the answer.
func (a *API) do(ctx context.Context, method string, answer func() error) (err error) {
	v := visitOf(ctx)
	code := codes.Internal
	defer func() {
		if p := recover(); p != nil {
			a.Panics.Add(p)
			err = status.Error(codes.Internal, "internal error")
		}
		a.Requests.WithLabelValues(method, code.String()).Inc()
	}()
	err = a.mayCall(v, method)
	if err == nil {
		err = answer()
	}
	code = status.Code(err)
	return err
}

// rightFor returns what a method needs.
func rightFor(method string) right {
	if r, known := rights[method]; known {
		return r
	}
	return right{role: access.Viewer, does: "ask this"}
}

// allows reports whether a caller may call a method.
func allows(v *visit, method string) bool {
	return v.refused == nil && rightFor(method).isFor(v.member)
}

func (r right) isFor(member *access.Member) bool {
	return member.Role >= r.role || r.local && member.IsLocal
}

// mayStill returns why a caller who could call a method no longer may, or nil: tokens are
// revoked, and certificates expire.
func mayStill(ctx context.Context, method string) error {
	member, err := visitOf(ctx).again()
	if err == nil && !rightFor(method).isFor(member) {
		err = lacksRole(member, method)
	}
	return err
}

func lacksRole(member *access.Member, method string) error {
	needs := rightFor(method)
	return status.Errorf(codes.PermissionDenied, "to %s takes the role %s, and %q has the role %s (admin.tokens_file)", needs.does, max(needs.role, needs.all), member.Name, member.Role)
}

// mayCall returns why a caller may not call a method, which it logs, or nil.
func (a *API) mayCall(v *visit, method string) error {
	if allows(v, method) {
		return nil
	}
	err := v.refused
	if err == nil {
		err = lacksRole(v.member, method)
	}
	if unlogged, due := a.refusals.Due(a.Now(), time.Second); due && status.Code(err) != codes.Unimplemented {
		a.Log.Warn("admin request refused", "method", method, "from", v.from, "code", status.Code(err).String(), "why", status.Convert(err).Message(), "unlogged_before", unlogged)
	}
	return err
}

const (
	// maxReading and maxChanging bound the requests that are answered at a time, until
	// their answers have left. Changes by operators have places of their own, so that
	// other callers never keep an operator from blocking a subject.
	maxReading, maxChanging = 16, 16
	// maxWhole bounds the requests whose answer may be megabytes: it is made whole.
	maxWhole = 2
	// placeWait is how long a request waits for a place.
	placeWait = 10 * time.Second
	// answersWithin bounds how long an answer takes to make.
	answersWithin = 15 * time.Second
	// While others wait for its place, an answer waits for its caller for answerPatience
	// in all, and as long again for each answerPace bytes.
	answerPatience, answerPace = 250 * time.Millisecond, 8 << 20
	// answerLongest is how long an answer may take until it has left.
	answerLongest = time.Minute
)

func newPlaces(maxPlaces int) *pages.Places {
	return &pages.Places{
		Max: maxPlaces, Wait: placeWait, Patience: answerPatience, Pace: answerPace, Longest: answerLongest,
	}
}

var errBusy = status.Errorf(codes.ResourceExhausted, "all requests of the admin API that may be answered at a time are being answered, and none of them has ended within %v; ask again", placeWait)

// placesFor returns the places of a request that a member makes.
func (a *API) placesFor(method string, member *access.Member) *pages.Places {
	switch needs := rightFor(method); {
	case needs.isLong:
		return a.whole
	case needs.changes && member.Role == access.Operator:
		return a.changing
	}
	return a.reading
}

// inPlace calls answer once there is one of the places for a request. Its error is a
// status.
func inPlace(ctx context.Context, w http.ResponseWriter, places *pages.Places, answer func(http.ResponseWriter) error) error {
	place, err := places.Enter(ctx, w, memberOf(ctx).Name)
	switch {
	case errors.Is(err, pages.ErrNoPlace):
		return errBusy
	case err != nil:
		return status.FromContextError(err).Err()
	}
	defer place.Leave()
	return answer(place)
}

// unary is the interceptor of calls, which have a place already.
func (a *API) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (answer any, err error) {
	err = a.do(ctx, methodOf(info.FullMethod), func() error {
		ctx, cancel := context.WithTimeout(ctx, answersWithin)
		defer cancel()
		answer, err = next(ctx, request)
		return err
	})
	return answer, err
}

// stream is the interceptor of streams.
func (a *API) stream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	return a.do(stream.Context(), methodOf(info.FullMethod), func() error { return next(service, stream) })
}

// unknownMethod refuses unknown methods by a handler, so that the interceptor sees
// them.
func unknownMethod(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	return status.Errorf(codes.Unimplemented, "unknown method %s", method)
}
