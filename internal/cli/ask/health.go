package ask

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
)

// HealthCommand asks the daemon with the settings that load returns, or the one that its
// flags name.
func HealthCommand(load dial.Loader) *cobra.Command {
	to := dial.ToGRPC(load)
	timeout, asJSON := time.Second, false
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask a daemon whether it serves",
		Long: `Asks the gRPC health service of a daemon. Exits with 0 when it serves and with 1
otherwise: a health check for containers without a shell.`,
		Example: `  ratelimitd health
  ratelimitd health --address ratelimitd:8081 --timeout 3s`,
		Args: cmdline.NoArguments,
	}
	to.Bind(cmd.Flags())
	cmdline.BindJSON(cmd.Flags(), &asJSON, "the answer")
	cmd.Flags().Var(cmdline.Wait(&timeout), "timeout", "how long to wait for the answer")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		return showHealth(ctx, cmd.OutOrStdout(), &to, asJSON)
	}
	return cmd
}

// showHealth prints what a daemon says about itself; not serving is an error.
func showHealth(ctx context.Context, out io.Writer, to *dial.Target, asJSON bool) error {
	conn, err := to.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	r, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		return to.Failure(conn, err)
	}
	if asJSON {
		err = cmdline.WriteMessage(out, r)
	} else {
		_, err = fmt.Fprintln(out, r.GetStatus())
	}
	if err != nil {
		return err
	}
	if r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return cmdline.ExitCode(cmdline.ExitError)
	}
	return nil
}
