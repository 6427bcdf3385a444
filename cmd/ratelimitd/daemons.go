package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/fleet"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
)

// patience is how long to wait for Redis at least: the command has no connection
// yet.
const patience = 3 * time.Second

func daemonsCommand() *cobra.Command {
	file, asJSON := "", false
	cmd := &cobra.Command{
		Use:   "daemons",
		Short: "List the daemons that share a Redis",
		Long: `Lists the daemons that are signed in to the register in Redis under the prefix
of the settings, which are given as to serve. Says so when their rules differ.

Exits with 0 when the daemons have the same rules, also when nobody is in the
register, and with 1 when their rules differ or the register cannot be read.`,
		Example: `  ratelimitd daemons --store redis --redis-addresses 10.0.0.5:6379
  ratelimitd daemons --config ratelimitd.yaml --json`,
		Args: noArguments,
	}
	cmd.Flags().StringVar(&file, "config", os.Getenv("RATELIMITD_CONFIG"), "YAML file of settings")
	bindJSON(cmd.Flags(), &asJSON, "each daemon")
	bindStoreFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, warnings, err := settings.Load(cmd.Flags(), os.Environ(), file)
		if err != nil {
			return fmt.Errorf("settings:\n%w", err)
		}
		for _, w := range warnings {
			fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+w)
		}
		if s.Store != settings.StoreRedis {
			return fmt.Errorf("store is %s: such daemons do not know of each other, and there is no register of them; it is there with --store redis", s.Store)
		}
		daemons, at, err := readRegister(cmd.Context(), s.Redis)
		switch {
		case err != nil:
			return err
		case asJSON:
			for _, d := range daemons {
				err = errors.Join(err, printJSON(cmd.OutOrStdout(), d))
			}
		case len(daemons) == 0:
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "no daemon is signed in under the prefix %q\n", s.Redis.Prefix)
		default:
			err = printDaemons(cmd.OutOrStdout(), daemons, at)
		}
		if err != nil {
			return err
		}
		if differ := fleet.RulesDiffer(daemons); differ != "" {
			fmt.Fprintln(cmd.ErrOrStderr(), "rules differ: "+differ)
			return exitCode(exitError)
		}
		return nil
	}
	return cmd
}

// bindStoreFlags defines the flags of settings that say where the store is.
func bindStoreFlags(fs *pflag.FlagSet) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	settings.BindFlags(all)
	all.VisitAll(func(f *pflag.Flag) {
		if f.Name == "store" || strings.HasPrefix(f.Name, "redis-") {
			fs.AddFlag(f)
		}
	})
}

// readRegister returns the daemons in the register, and the time at which it was
// read, on the clock of Redis.
func readRegister(ctx context.Context, r settings.Redis) ([]fleet.Daemon, time.Time, error) {
	silent := slog.New(slog.DiscardHandler)
	redisconn.LogClient(silent)
	r.Timeout = max(r.Timeout, patience)
	conn, err := connect(r, silent)
	if err != nil {
		return nil, time.Time{}, err
	}
	daemons, at, err := fleet.Register{Redis: conn}.Daemons(ctx)
	if err != nil {
		err = fmt.Errorf("the register of daemons cannot be read (redis.mode %s, redis.addresses %s): %w", r.Mode, strings.Join(r.Addresses, ","), err)
	}
	return daemons, at, errors.Join(err, conn.Close())
}

func printDaemons(w io.Writer, daemons []fleet.Daemon, at time.Time) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tADDRESS\tVERSION\tTAGS\tSTATE\tRULES\tUP\tSEEN")
	for _, d := range daemons {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s ago\n", d.ID, d.Address, orDash(d.Version), d.HashTags, d.StateFormat,
			orDash(fleet.ShortRules(d.Rules)),
			timespan.Format(at.Sub(d.Started)), timespan.Format(at.Sub(d.Seen)))
	}
	return t.Flush()
}
