package ask

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"google.golang.org/grpc"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/redislog"
	"github.com/ratelimitd/ratelimitd/internal/server/adminapi"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// ofSnapshot answers like a daemon with the assignments of a snapshot. It only lists
// them.
type ofSnapshot struct {
	adminv1.AdminServiceClient
	api *adminapi.API
}

func (o ofSnapshot) ListAssignments(ctx context.Context, r *adminv1.ListAssignmentsRequest, _ ...grpc.CallOption) (*adminv1.ListAssignmentsResponse, error) {
	return o.api.ListAssignments(ctx, r)
}

// loadedTable is the part of a store of assignments that lists them.
type loadedTable struct {
	assign.Store
	table *assign.Table
}

func (l loadedTable) Table() *assign.Table { return l.table }
func (l loadedTable) Loaded() bool         { return true }

// snapshotAPI reads a snapshot, and describes it on stderr.
func snapshotAPI(path string, stderr io.Writer) (adminv1.AdminServiceClient, error) {
	table := assign.NewTable()
	head, err := redislog.ReadSnapshot(path, "", table.Put)
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		err = pathErr.Err // the caller names the file
	}
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(stderr, "%s: %d assignments of %s, as of %s\n", path, table.Len(), spelling.Visible(head.Where), head.SavedAt.UTC().Format(time.RFC3339))
	return ofSnapshot{api: &adminapi.API{Options: adminapi.Options{Assignments: loadedTable{table: table}, Now: time.Now}}}, nil
}
