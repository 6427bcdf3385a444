package adminapi

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// Reset implements adminv1.AdminServiceServer.
func (a *API) Reset(ctx context.Context, r *adminv1.ResetRequest) (*adminv1.ResetResponse, error) {
	if a.Assignments == nil {
		return nil, errNoAssignments
	}
	// Its subject, reason and caller are checked like those of a change.
	change := a.removal(ctx, r.GetDomain(), r.GetEntries(), r.GetReason())
	if err := change.Check(); err != nil {
		return nil, endpoint.Invalid("%v", err)
	}
	subject, by := a.counted(change.Subject), change.By
	states, err := a.Decider.Resettable(subject.Domain, subject.Entries, r.Limit)
	if err != nil {
		return nil, endpoint.Status(err)
	}
	if states.Idle != "" {
		warnings := append([]string{states.Idle}, states.Hints...)
		if r.GetStrict() {
			return nil, idleReset(warnings)
		}
		return &adminv1.ResetResponse{Warnings: warnings}, nil
	}
	if n := len(states.Keys); n > assign.MaxReset {
		return nil, endpoint.Invalid("limit: found none for a subject with %d states, over all plans, where a reset forgets at most %d together; allowed: the name of one limit (%s)",
			n, assign.MaxReset, yamlfile.Shorten(yamlfile.Commas(states.Limits)))
	}
	reset := assign.Reset{
		Keys:        states.Keys,
		Record:      assign.Record{Kind: assign.WasReset, By: by, Reason: r.GetReason(), Subject: subject, Limits: states.Limits},
		OnlyCounted: r.GetStrict(),
	}
	freed := 0
	if states.HasHolder {
		if freed, err = a.Decider.Free(ctx, &states); err != nil {
			return nil, status.Errorf(codes.Unavailable, "the store did not answer; the holder's slot is free or not, ask again: %v", err)
		}
		if freed == 0 && r.GetStrict() {
			return nil, idleReset(append([]string{notHeld(subject)}, states.Hints...))
		}
		reset.Keys, reset.OnlyCounted = recordOnly(states.Keys), false
	}
	existed, err := a.Assignments.Reset(ctx, reset)
	switch {
	case err != nil && freed > 0:
		return nil, status.Errorf(codes.Unavailable, "the holder's slot is free, but whether that is in the audit is not known: %v", err)
	case errors.Is(err, assign.ErrNothingChanged):
		return nil, status.Errorf(codes.Unavailable, "%v", err)
	case err != nil:
		return nil, status.Errorf(codes.Unavailable, "the store did not answer; it was reset or not, ask again: %v", err)
	}
	var warnings []string
	switch {
	case states.HasHolder && freed == 0:
		warnings = append([]string{notHeld(subject)}, states.Hints...)
	case states.HasHolder:
	case existed == 0:
		warnings = append(warnings, fmt.Sprintf("nothing is counted for %s: %s full", words.Entries(subject.Entries), areLimits(states.Limits)))
		warnings = append(warnings, states.Hints...)
		if r.GetStrict() {
			return nil, idleReset(warnings)
		}
	}
	a.Log.Info("limits reset", "by", by, "domain", subject.Domain, "entries", spelling.Entries(subject.Entries),
		"limits", limitNames(states.Limits), "reason", r.GetReason())
	return &adminv1.ResetResponse{Limits: states.Limits, Warnings: warnings}, nil
}

// notHeld says that the holder whom a subject names has no slot.
func notHeld(subject assign.Subject) string {
	return fmt.Sprintf("no slot is held by %s", words.Entries(subject.Entries))
}

// recordOnly returns keys beside those of states, which no state has: a reset of them
// records what was done, and forgets nothing.
func recordOnly(keys []string) []string {
	return []string{keys[0] + "#holder"}
}

// idleReset is the error of a strict reset that would have no effect.
func idleReset(warnings []string) error {
	return status.Error(codes.FailedPrecondition, strings.Join(warnings, "; "))
}

// areLimits names limits as the subject of a sentence.
func areLimits(names []string) string {
	if len(names) == 1 {
		return limitNames(names) + " is"
	}
	return yamlfile.Shorten(limitNames(names)) + " are"
}

// limitNames lists names of limits for people; a limit may have none.
func limitNames(names []string) string {
	shown := make([]string, len(names))
	for i, name := range names {
		if shown[i] = name; name == "" {
			shown[i] = "the limit without a name"
		}
	}
	return strings.Join(shown, ", ")
}
