package adminapi

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/fleet"
	"github.com/ratelimitd/ratelimitd/internal/logthin"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	"github.com/ratelimitd/ratelimitd/internal/server/pages"
	"github.com/ratelimitd/ratelimitd/internal/top"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// Options of an API.
type Options struct {
	// Gate says who calls. Without it no caller is served, and the error names the setting.
	Gate *access.Gate
	// VerifyClient returns why the certificate of a client is not valid now; nil if none
	// is asked for.
	VerifyClient func(tls.ConnectionState) error
	// Live has the rules.
	Live *rules.Live
	// Decider explains what requests would get.
	Decider *decide.Decider
	// Assignments keeps the assignments, and the record of changes. Without it there
	// are none, and methods about them are UNIMPLEMENTED.
	Assignments assign.Store
	// Relief bounds what the role support may change.
	Relief Relief
	// Daemons returns the daemons that share the store, the ID of this one, and the time
	// of that list, on their clock.
	Daemons func(context.Context) (_ []fleet.Daemon, self string, at time.Time, _ error)
	// AskTop asks the other daemons who had the most. It calls take with their answers,
	// one at a time, and returns the IDs of those that did not give one; nil means that
	// there are no others.
	AskTop func(_ context.Context, _ top.Question, take func(top.Answer)) (pending []string, _ error)
	// Requests counts the answers of the API, by method and code.
	Requests *prometheus.CounterVec
	Panics   *endpoint.PanicLog
	Log      *slog.Logger
	// Now is the clock of assignments' ends, and spaces lines of the log.
	Now func() time.Time
	// Stopping ends when the server stops, and ends watches with it.
	Stopping context.Context
}

// API serves ratelimit.admin.v1.AdminService.
type API struct {
	adminv1.UnimplementedAdminServiceServer
	Options
	grpc *grpc.Server
	mux  http.Handler
	// changing has the places for changes by operators, whole those for answers that may be
	// megabytes, and reading those for all other requests.
	reading, changing, whole *pages.Places
	watching                 watchPlaces
	refusals                 logthin.Thinner
}

// maxMessage bounds a gRPC message, in bytes, as gRPC itself does by default. A body in
// JSON may have twice as many.
const maxMessage = 4 << 20

// New returns the API.
func New(o Options) *API {
	a := &API{Options: o, reading: newPlaces(maxReading), changing: newPlaces(maxChanging), whole: newPlaces(maxWhole)}
	countFromZero(o.Requests)
	a.grpc = grpc.NewServer(
		grpc.UnaryInterceptor(a.unary),
		grpc.StreamInterceptor(a.stream),
		grpc.UnknownServiceHandler(unknownMethod),
		grpc.MaxRecvMsgSize(maxMessage),
	)
	adminv1.RegisterAdminServiceServer(a.grpc, a)
	reflection.Register(a.grpc)
	a.mux = a.handler()
	return a
}

// Stop ends all gRPC calls.
func (a *API) Stop() { a.grpc.Stop() }
