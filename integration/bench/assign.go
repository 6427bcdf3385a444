package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// token is the operator's token of this program's daemons.
const token = "bench"

var tokensFile = fmt.Sprintf("- {name: bench, role: operator, sha256: %x}\n", sha256.Sum256([]byte(token)))

const (
	// reassignEvery is how often an assignment changes, in loads that change them.
	reassignEvery = 200 * time.Millisecond
	putsPerCall   = 1000
)

// assigner gives users numbers of their own. One goroutine at a time uses it.
type assigner struct {
	conn  *grpc.ClientConn
	admin adminv1.AdminServiceClient
	users int
	made  int // changes so far
}

// newAssigner assigns numbers to this many users through a daemon's admin port.
func newAssigner(ctx context.Context, address string, users int) (*assigner, error) {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	a := &assigner{conn: conn, admin: adminv1.NewAdminServiceClient(conn), users: users}
	for first := 0; first < users; first += putsPerCall {
		if err := a.put(ctx, first, min(putsPerCall, users-first)); err != nil {
			a.close()
			return nil, err
		}
	}
	return a, nil
}

func (a *assigner) close() { a.conn.Close() }

// put gives n users new numbers, far above what they will use.
func (a *assigner) put(ctx context.Context, first, n int) error {
	r := &adminv1.PutAssignmentsRequest{}
	a.made++
	for i := range n {
		r.Puts = append(r.Puts, &adminv1.PutAssignment{Assignment: &adminv1.Assignment{
			Domain:  domain,
			Entries: []*ratelimitv1.Entry{{Key: "user", Value: value(first + i)}},
			Numbers: []*adminv1.AssignedNumbers{{Requests: uint64(20_000_000 + a.made%1000)}},
		}})
	}
	answer, err := a.admin.PutAssignments(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token), r)
	if err != nil {
		return err
	}
	for _, c := range answer.GetChanges() {
		switch c.GetOutcome() {
		case adminv1.ChangeOutcome_CHANGE_OUTCOME_CREATED, adminv1.ChangeOutcome_CHANGE_OUTCOME_REPLACED:
		default:
			return fmt.Errorf("an assignment is %v: %s", c.GetOutcome(), c.GetError())
		}
	}
	return nil
}

// keepChanging changes an assignment every now and then until ctx ends.
func (a *assigner) keepChanging(ctx context.Context) error {
	tick := time.NewTicker(reassignEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := a.put(ctx, a.made%population, 1); err != nil && ctx.Err() == nil {
			return err
		}
	}
}
