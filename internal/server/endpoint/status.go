package endpoint

import (
	"context"
	"errors"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/decide"
)

// codesOf has the gRPC codes for the errors of the decider.
var codesOf = [...]codes.Code{
	decide.Invalid:   codes.InvalidArgument,
	decide.Forbidden: codes.PermissionDenied,
	decide.Changed:   codes.FailedPrecondition,
	decide.NotReady:  codes.Unavailable,
}

// HTTPStatus returns the HTTP status for a gRPC code. It is never 429: a caller would
// take that for a denial.
func HTTPStatus(code codes.Code) int {
	switch code {
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.NotFound:
		return http.StatusNotFound
	case codes.FailedPrecondition:
		return http.StatusConflict
	case codes.Unimplemented:
		return http.StatusNotImplemented
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded, codes.ResourceExhausted:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// Invalid returns the status of an invalid request. The text says where, what was
// found and what is allowed.
func Invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// Status returns an error of the decider as a status, and any other error as it is.
func Status(err error) error {
	if e, ok := errors.AsType[*decide.Error](err); ok {
		return status.Error(codesOf[e.Kind], e.Text)
	}
	return err
}

// storeStatus turns an error of the store into a status that a client can act on.
func storeStatus(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return status.Error(codes.Canceled, "the caller has gone")
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		// The caller's own clock shows it the same at this moment.
		return status.Errorf(codes.DeadlineExceeded, "the store did not decide before the caller's deadline: %v", err)
	}
	return status.Errorf(codes.Unavailable, "the store did not decide: %v", err)
}
