package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
)

// healthCommand asks the daemon with the settings that load returns, or the one of
// its flags.
func healthCommand(load func() (settings.Settings, error)) *cobra.Command {
	to := grpcTarget(load)
	timeout, asJSON := time.Second, false
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask a daemon whether it serves",
		Long: `Asks the gRPC health service of a daemon. Exits with 0 when it serves and with 1
otherwise: a health check for containers without a shell.`,
		Example: `  ratelimitd health
  ratelimitd health --address ratelimitd:8081 --timeout 3s`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn, err := to.dial()
			if err != nil {
				return err
			}
			defer conn.Close()
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			r, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
			if err != nil {
				return to.failure(conn, err)
			}
			if asJSON {
				err = printMessage(cmd.OutOrStdout(), r)
			} else {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), r.GetStatus())
			}
			if err != nil {
				return err
			}
			if r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
				return exitCode(exitError)
			}
			return nil
		},
	}
	to.bind(cmd.Flags())
	bindJSON(cmd.Flags(), &asJSON, "the answer")
	cmd.Flags().Var(waitFlag{&timeout}, "timeout", "how long to wait for the answer")
	return cmd
}
