package adminapi

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ratelimitd/ratelimitd/internal/fleet"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// ListDaemons implements adminv1.AdminServiceServer.
func (a *API) ListDaemons(ctx context.Context, _ *adminv1.ListDaemonsRequest) (*adminv1.ListDaemonsResponse, error) {
	daemons, self, at, err := a.Daemons(ctx)
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "the register of daemons does not answer: %v", err)
	}
	response := &adminv1.ListDaemonsResponse{SameRules: fleet.RulesDiffer(daemons) == "", At: timestamppb.New(at)}
	for i := range daemons {
		response.Daemons = append(response.Daemons, ShowDaemon(&daemons[i], self))
	}
	return response, nil
}

// ShowDaemon returns the message about a daemon; self is the ID of the one that answers.
func ShowDaemon(d *fleet.Daemon, self string) *adminv1.Daemon {
	m := &adminv1.Daemon{
		Id: d.ID, Address: d.Address, Version: d.Version, Rules: d.Rules,
		Started: timestamppb.New(d.Started), Seen: timestamppb.New(d.Seen), Self: d.ID == self,
		HashTags: uint32(d.HashTags), StateFormat: uint32(d.StateFormat), TimeZones: d.Zones, Change: d.Change,
	}
	for _, format := range d.Reads {
		m.Reads = append(m.Reads, uint32(format))
	}
	return m
}

// pending returns the daemons with these IDs. For those that the register no longer knows
// it has only the ID.
func (a *API) pending(ctx context.Context, ids []string) []*adminv1.Daemon {
	if len(ids) == 0 {
		return nil
	}
	known := make(map[string]*adminv1.Daemon)
	if daemons, self, _, err := a.Daemons(ctx); err == nil {
		for i := range daemons {
			known[daemons[i].ID] = ShowDaemon(&daemons[i], self)
		}
	}
	var all []*adminv1.Daemon
	for _, id := range ids {
		d := known[id]
		if d == nil {
			d = &adminv1.Daemon{Id: id}
		}
		all = append(all, d)
	}
	return all
}
