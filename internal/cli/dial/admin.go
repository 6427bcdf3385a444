package dial

import (
	"context"
	"errors"

	"google.golang.org/grpc"

	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// Admin calls the admin API of a daemon, with a timeout for each call.
type Admin struct {
	adminv1.AdminServiceClient
	conn *grpc.ClientConn
	to   *Target
}

// WithAdmin calls do with a connection to the daemon's admin port.
func (t *Target) WithAdmin(do func(Admin) error) error {
	conn, err := t.Dial()
	if err != nil {
		return err
	}
	return errors.Join(do(Admin{AdminServiceClient: adminv1.NewAdminServiceClient(conn), conn: conn, to: t}), conn.Close())
}

// Of returns an API that is not at the other end of a connection. Its calls fail with its
// own errors.
func Of(api adminv1.AdminServiceClient, to *Target) Admin {
	return Admin{AdminServiceClient: api, to: to}
}

// Call calls an RPC within the user's timeout.
func Call[Request, Response any](ctx context.Context, a Admin, rpc func(context.Context, Request, ...grpc.CallOption) (Response, error), request Request) (Response, error) {
	ctx, cancel := context.WithTimeout(ctx, a.to.timeout)
	defer cancel()
	response, err := rpc(ctx, request)
	if err != nil {
		return response, a.to.Failure(a.conn, err)
	}
	return response, nil
}
