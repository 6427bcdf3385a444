package adminapi

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/server/accounts"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// right is what a method needs, as the comments of the service say.
type right struct {
	role access.Role
	// does says in the words of people what the method does. Callers of the command
	// line know no methods.
	does string
}

var rights = map[string]right{
	"ListDomains":      {access.Viewer, "list domains"},
	"GetRule":          {access.Viewer, "see rules"},
	"Explain":          {access.Support, "explain"},
	"Inspect":          {access.Support, "inspect"},
	"Reset":            {access.Support, "reset"},
	"PutAssignments":   {access.Operator, "assign or block"},
	"GetAssignment":    {access.Viewer, "see assignments"},
	"ListAssignments":  {access.Viewer, "see assignments"},
	"DeleteAssignment": {access.Operator, "end an assignment or a block"},
	"WatchAssignments": {access.Viewer, "watch assignments"},
	"ListDaemons":      {access.Viewer, "list daemons"},
	"ListAudit":        {access.Viewer, "read the audit"},
	"Top":              {access.Support, "see who is over"},
}

// other is how methods are counted that are none of the service: those of
// reflection, and unknown ones.
const other = "other"

// countFromZero has the counters of each method begin at 0, so that the first
// refusal is an increase.
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

// do has a method answered if its caller may call it, and counts the answer.
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
	return right{access.Viewer, "ask this"}
}

// allows reports whether a method is for its caller.
func allows(v *visit, method string) bool {
	return v.refused == nil && v.member.Role >= rightFor(method).role
}

// mayCall returns why a method is not for its caller, which it logs, or nil.
func (a *API) mayCall(v *visit, method string) error {
	if allows(v, method) {
		return nil
	}
	err := v.refused
	if err == nil {
		needs := rightFor(method)
		err = status.Errorf(codes.PermissionDenied, "to %s takes the role %s, and %q has the role %s (admin.tokens_file)", needs.does, needs.role, v.member.Name, v.member.Role)
	}
	if unlogged, due := a.refusals.Due(a.Now(), time.Second); due && status.Code(err) != codes.Unimplemented {
		a.Log.Warn("admin request refused", "method", method, "from", v.from, "code", status.Code(err).String(), "why", status.Convert(err).Message(), "unlogged_before", unlogged)
	}
	return err
}

var errBusy = status.Errorf(codes.ResourceExhausted, "%d requests of the admin API are being answered; ask again", runningMost)

// bounded has a request of so many bytes answered that ends by itself.
func (a *API) bounded(ctx context.Context, bytes int, answer func(context.Context) error) error {
	select {
	case a.running <- struct{}{}:
	default:
		return errBusy
	}
	defer func() { <-a.running }()
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	if err := accounts.ConnectionOf(ctx).Reserve(ctx, int64(4*bytes)); err != nil {
		return err
	}
	return answer(ctx)
}

// unary is the interceptor of calls.
func (a *API) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (answer any, err error) {
	err = a.do(ctx, methodOf(info.FullMethod), func() error {
		return a.bounded(ctx, proto.Size(request.(proto.Message)), func(ctx context.Context) error {
			answer, err = next(ctx, request)
			return err
		})
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
