package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

func inspectCommand(load func() (settings.Settings, error)) *cobra.Command {
	to := adminTarget(load)
	domain, asJSON := "", false
	cmd := &cobra.Command{
		Use:   "inspect --domain D KEY=VALUE[,KEY=VALUE]...",
		Short: "Show what is left of somebody's limits",
		Long: `Shows the limits of a customer, such as tenant=acme: what is left of each, and
where its numbers come from. It takes nothing.`,
		Example:           `  ratelimitd inspect --domain api user=alice`,
		Args:              atLeastOne(subjectArgument),
		ValidArgsFunction: completeEntries(load),
	}
	bindDomain(cmd, &domain, load)
	bindJSON(cmd.Flags(), &asJSON, "each answer")
	to.bind(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		subjects, err := takeOf(domain, args)
		if err != nil {
			return err
		}
		return to.withAdmin(func(a admin) error {
			for _, d := range subjects.GetDescriptors() {
				r, err := call(cmd.Context(), a, a.Inspect, &adminv1.InspectRequest{Domain: domain, Entries: d.GetEntries()})
				if err != nil {
					return err
				}
				if asJSON {
					err = printMessage(cmd.OutOrStdout(), r)
				} else {
					err = writeInspectTree(cmd.OutOrStdout(), r, columnsOf(cmd.OutOrStdout()))
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return cmd
}

func resetCommand(load func() (settings.Settings, error)) *cobra.Command {
	to := adminTarget(load)
	domain, reason, limit, force, asJSON := "", "", "", false, false
	cmd := &cobra.Command{
		Use:   "reset --domain D KEY=VALUE[,KEY=VALUE]...",
		Short: "Give somebody full limits again",
		Long: `Forgets what was taken from the limits of a customer, such as tenant=acme, or
from the one of --limit: it is then as if nothing had been taken. Where the
values of a pattern share one counter (share_threshold), it is reset for all of
them. Where no rule is for the customer, or nothing was taken, as where the name
is misspelt, it is refused, unless --force.
` + codesOfChanges,
		Example: `  ratelimitd reset --domain api user=alice --reason "ticket 815"
  ratelimitd reset --domain api user=alice --limit day`,
		Args:              atLeastOne(subjectArgument),
		ValidArgsFunction: completeEntries(load),
	}
	bindDomain(cmd, &domain, load)
	cmd.Flags().StringVar(&limit, "limit", "", "name of the one limit to reset (default: all limits)")
	completeFlag(cmd, "limit", completeLimit(load, ""))
	bindReason(cmd, &reason)
	bindForce(cmd.Flags(), &force, "do it though there is nothing to reset")
	bindJSON(cmd.Flags(), &asJSON, "each answer")
	to.bindChange(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		subjects, err := takeOf(domain, args)
		if err != nil {
			return err
		}
		return to.withAdmin(func(a admin) error {
			var lacking lacking
			isRefused, isForceable := false, false
			for _, d := range subjects.GetDescriptors() {
				request := &adminv1.ResetRequest{Domain: domain, Entries: d.GetEntries(), Reason: reason, Strict: !force, MaxWait: a.to.maxWait}
				if cmd.Flags().Changed("limit") {
					request.Limit = &limit
				}
				subject := subjectText(domain, d.GetEntries())
				r, err := call(cmd.Context(), a, a.Reset, request)
				if failed := (callError{}); isResetRefused(status.Code(err)) && errors.As(err, &failed) {
					isRefused = true
					isForceable = isForceable || status.Code(err) == codes.FailedPrecondition
					fmt.Fprintln(cmd.ErrOrStderr(), spelling.Visible(fmt.Sprintf("refused  %s: %s", subject, status.Convert(failed.err).Message())))
					continue
				}
				if err != nil {
					return err
				}
				lacking.add(r)
				tellWarnings(cmd.ErrOrStderr(), subject, r.GetWarnings())
				switch {
				case asJSON:
					err = printMessage(cmd.OutOrStdout(), r)
				case len(r.GetLimits()) == 0:
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "unchanged  %s: no limit to reset\n", spelling.Visible(subject))
				default:
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "reset  %s: %s\n", spelling.Visible(subject), spelling.Visible(limitNames(r.GetLimits())))
				}
				if err != nil {
					return err
				}
				tellSharedCounter(cmd, a, request)
			}
			err := lacking.tell(cmd.ErrOrStderr())
			if isForceable {
				fmt.Fprintln(cmd.ErrOrStderr(), useForce)
			}
			if isRefused {
				return exitCode(exitError)
			}
			return err
		})
	}
	return cmd
}

// isResetRefused reports whether a code is that of a reset that was not made for what it
// names. Daemons of older versions find no rule.
func isResetRefused(code codes.Code) bool {
	return code == codes.FailedPrecondition || code == codes.InvalidArgument || code == codes.NotFound
}

// tellSharedCounter says so if a reset was of a counter that others share. It is
// silent where the daemon does not say: the reset is made.
func tellSharedCounter(cmd *cobra.Command, a admin, r *adminv1.ResetRequest) {
	found, err := call(cmd.Context(), a, a.Inspect, &adminv1.InspectRequest{Domain: r.GetDomain(), Entries: r.GetEntries()})
	if rule := found.GetDescriptor_().GetRule(); err == nil && rule.GetShareThreshold() {
		fmt.Fprintf(cmd.ErrOrStderr(), "all values of %s share this counter (share_threshold), so it was reset for all of them\n", spelling.Visible(rule.GetPath()))
	}
}
