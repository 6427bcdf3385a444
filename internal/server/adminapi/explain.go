package adminapi

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/trace"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/explain"
	"github.com/ratelimitd/ratelimitd/internal/server/assignmsg"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	"github.com/ratelimitd/ratelimitd/internal/server/takeapi"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// Explain implements adminv1.AdminServiceServer.
func (a *API) Explain(ctx context.Context, r *adminv1.ExplainRequest) (*adminv1.ExplainResponse, error) {
	c, err := takeapi.CallOf(a.Decider, r.GetTake())
	if err != nil {
		return nil, err
	}
	defer c.Release()
	if c.Owner, err = ownerOf(r); err != nil {
		return nil, err
	}
	if err := c.Check(false); err != nil {
		return nil, endpoint.Status(err)
	}
	x, err := explain.Request(ctx, a.Decider, c)
	if err != nil {
		return nil, unexplained(err)
	}
	m := explainResponse(x, a.Now())
	m.LoadFailed = a.Live.Status().LastError != nil
	if proto.Size(m) > endpoint.MaxAnswer {
		return nil, endpoint.ErrAnswerTooLong
	}
	return m, nil
}

// Inspect implements adminv1.AdminServiceServer.
func (a *API) Inspect(ctx context.Context, r *adminv1.InspectRequest) (*adminv1.InspectResponse, error) {
	owner, err := ownerOf(r)
	if err != nil {
		return nil, err
	}
	x, err := explain.Subject(ctx, a.Decider, r.GetDomain(), assignmsg.Entries(r.GetEntries()), r.GetId(), owner)
	if err != nil {
		return nil, unexplained(err)
	}
	if x.Domain == nil {
		return nil, status.Error(codes.NotFound, "domain: "+trace.NoDomain(a.Live.Rules(), r.GetDomain()))
	}
	return &adminv1.InspectResponse{Descriptor_: explainResponse(x, a.Now()).GetDescriptors()[0], Degraded: x.Degraded}, nil
}

// ownerOf returns whose ID a request names.
func ownerOf(r interface{ GetCaller() string }) (string, error) {
	if n := len(r.GetCaller()); n > yamlfile.MaxName {
		return "", endpoint.Invalid("caller: found %d bytes; allowed: a name in the callers file, of at most %d", n, yamlfile.MaxName)
	}
	return r.GetCaller(), nil
}

// unexplained returns the status of an error of the decider.
func unexplained(err error) error {
	err = endpoint.Status(err)
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Errorf(codes.Unavailable, "the store does not answer, and a request would fail: %v", err)
}

// explainResponse returns an explanation as a message. now is for limits by calendar.
func explainResponse(x *explain.Explanation, now time.Time) *adminv1.ExplainResponse {
	m := &adminv1.ExplainResponse{
		DomainKnown: x.Domain != nil, NearDomain: x.NearDomain, Allowed: x.Allowed,
		RetryAfter: wait(x.RetryAfter), RetryUnknown: x.RetryAfter == bucket.Unknown, Degraded: x.Degraded,
	}
	if x.DeniedBy >= 0 {
		m.DeniedByDescriptor = new(uint32(x.DeniedBy))
	}
	if x.DeniedByLimit >= 0 {
		m.DeniedByLimit = new(uint32(x.DeniedByLimit))
	}
	for i := range x.Descriptors {
		d := &x.Descriptors[i]
		e := explainedDescriptor(d, now)
		if d.Rule != nil {
			e.Rule = showRule(x.Domain, d.Rule, now)
			e.Rule.Limits, e.Rule.Plans = nil, nil // a request may name a rule a hundred times
		}
		m.Descriptors = append(m.Descriptors, e)
	}
	return m
}

func explainedDescriptor(d *explain.Descriptor, now time.Time) *adminv1.ExplainedDescriptor {
	m := &adminv1.ExplainedDescriptor{
		Entries: assignmsg.ShowEntries(d.Entries),
		// The values of both are the same, in the same order; those of a miss and a source too.
		Verdict: adminv1.Verdict(d.Verdict),
		Depth:   uint32(d.Depth),
		Reached: fileEntry(d.Reached),
		Miss:    adminv1.Miss(d.Miss),
		Near:    fileEntry(d.Near),
	}
	if d.Plan != nil {
		m.Plan = d.Plan.Plan
	}
	for _, n := range d.Networks {
		m.Networks = append(m.Networks, &adminv1.ExplainedNetwork{Key: n.Key, Counted: n.Counted, Cidr: n.CIDR})
	}
	for _, a := range d.Assignments {
		m.Assignments = append(m.Assignments, &adminv1.ExplainedAssignment{Assignment: assignmsg.Show(a.Assignment), Applies: a.Applies})
	}
	for i := range d.Limits {
		m.Limits = append(m.Limits, explainedLimit(&d.Limits[i], now))
	}
	return m
}

func fileEntry(p *trace.Place) *adminv1.FileEntry {
	if p == nil {
		return nil
	}
	return &adminv1.FileEntry{Path: p.Path, Place: &adminv1.Place{File: p.File, Line: uint32(p.Line)}}
}

func explainedLimit(l *explain.Limit, now time.Time) *adminv1.ExplainedLimit {
	m := &adminv1.ExplainedLimit{
		Limit:        showLimit(l.Limit, now),
		Source:       adminv1.Source(l.Source),
		Allowed:      l.Allowed(),
		Remaining:    uint64(l.Remaining),
		RetryAfter:   wait(l.RetryAfter),
		RetryUnknown: l.RetryAfter == bucket.Unknown,
		FreeAtLatest: wait(l.FreeAtLatest()),
		ResetAfter:   durationpb.New(l.ResetAfter),
		Shadow:       l.Shadow,
		Key:          l.Key,
		HashTag:      l.Tag,
		Node:         l.Node,
		Daemons:      uint32(l.Daemons),
		HoldersTotal: uint32(l.Held.Total),
	}
	if l.Paused > 0 {
		m.PausedUntil = timestamppb.New(now.Add(l.Paused))
	}
	if l.OnFailure != bucket.FailureDefault {
		m.OnStoreFailure = l.OnFailure.String()
	}
	if l.Location.Share != nil {
		m.Share = showLimit(l.Location.Share, now)
	}
	for _, h := range l.Held.First {
		m.Holders = append(m.Holders, &adminv1.Holder{Holder: strings.ToValidUTF8(h.Holder, "\uFFFD"), Left: durationpb.New(h.Left)})
	}
	if b := l.Bill; b.Takes > 0 {
		m.Bill = &adminv1.Bill{Cost: uint64(b.Total()), Takes: uint64(b.Takes), Left: durationpb.New(time.Duration(b.Until-l.Clock) * time.Microsecond)}
	}
	return m
}

// wait returns a retry time; nil for none, and for never.
func wait(d time.Duration) *durationpb.Duration {
	if d <= 0 {
		return nil
	}
	return durationpb.New(d)
}
