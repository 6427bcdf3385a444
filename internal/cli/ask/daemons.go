package ask

import (
	"cmp"
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
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/daemon/reach"
	"github.com/ratelimitd/ratelimitd/internal/fleet"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/server/adminapi"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// patience is the least time to wait for Redis: the command has no connection yet.
const patience = 3 * time.Second

// DaemonsCommand lists the daemons that share a Redis, by asking one or by their register.
func DaemonsCommand(load SettingsLoader) *cobra.Command {
	q := daemonsQuery{load: load}
	q.to = dial.ToAdmin(q.settings)
	cmd := &cobra.Command{
		Use:   "daemons",
		Short: "List the daemons that share a Redis",
		Long: `Lists the daemons that share a Redis, and says so when their rules differ. It
asks the admin API of one of them. With --store redis it reads the register in
Redis itself; the --redis flags and the environment are those of serve. CHANGE is the last record of the audit that a daemon had followed when it
was last seen.

Exits with 0 when the daemons have the same rules, even when the register is
empty, and with 1 when their rules differ or cannot be found out.`,
		Example: `  ratelimitd daemons
  ratelimitd daemons --admin-address 10.0.0.7:6070 --token-file token --json
  ratelimitd daemons --store redis --redis-addresses 10.0.0.5:6379`,
		Args: cmdline.NoArguments,
	}
	fs := cmd.Flags()
	fs.StringVar(&q.file, "config", os.Getenv("RATELIMITD_CONFIG"), "YAML file of settings")
	cmdline.BindJSON(fs, &q.asJSON, "each daemon")
	q.to.Bind(fs)
	bindStoreFlags(fs)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		q.flags = fs
		ask := q.fromDaemon
		if fs.Changed("store") || fs.Changed("redis-addresses") {
			ask = q.fromRegister
		}
		list, err := ask(cmd)
		if err != nil {
			return err
		}
		return q.print(cmd, list)
	}
	return cmd
}

// SettingsLoader returns the settings from flags, the environment and a file, and warnings.
type SettingsLoader func(fs *pflag.FlagSet, file string) (settings.Settings, []string, error)

// daemonsQuery is how to ask for the daemons.
type daemonsQuery struct {
	load   SettingsLoader
	to     dial.Target
	file   string
	asJSON bool
	flags  *pflag.FlagSet
	// under says where the register that was read is.
	under string
}

// settings returns the settings from the flags, the environment and the file.
func (q *daemonsQuery) settings() (settings.Settings, error) {
	s, _, err := q.load(q.flags, q.file)
	return s, err
}

func (q *daemonsQuery) fromDaemon(cmd *cobra.Command) (list *adminv1.ListDaemonsResponse, err error) {
	err = q.to.WithAdmin(func(a dial.Admin) error {
		list, err = dial.Call(cmd.Context(), a, a.ListDaemons, &adminv1.ListDaemonsRequest{})
		return err
	})
	return list, err
}

func (q *daemonsQuery) fromRegister(cmd *cobra.Command) (*adminv1.ListDaemonsResponse, error) {
	s, warnings, err := q.load(q.flags, q.file)
	if err != nil {
		return nil, fmt.Errorf("settings:\n%w", err)
	}
	for _, w := range warnings {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+w)
	}
	if s.Store != settings.StoreRedis {
		return nil, fmt.Errorf("store is %s: such daemons do not know of each other, and have no register; a register needs --store redis", s.Store)
	}
	q.under = fmt.Sprintf(" under the prefix %q", s.Redis.Prefix)
	daemons, at, err := readRegister(cmd.Context(), s.Redis)
	if err != nil {
		return nil, err
	}
	list := &adminv1.ListDaemonsResponse{SameRules: fleet.RulesDiffer(daemons) == "", At: timestamppb.New(at)}
	for i := range daemons {
		list.Daemons = append(list.Daemons, adminapi.ShowDaemon(&daemons[i], ""))
	}
	return list, nil
}

// print prints the daemons.
func (q *daemonsQuery) print(cmd *cobra.Command, list *adminv1.ListDaemonsResponse) (err error) {
	switch {
	case q.asJSON:
		for _, d := range list.GetDaemons() {
			err = errors.Join(err, cmdline.WriteMessage(cmd.OutOrStdout(), d))
		}
	case len(list.GetDaemons()) == 0:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "no daemon is signed in%s\n", q.under)
	default:
		err = printDaemons(cmd.OutOrStdout(), list)
	}
	if err != nil || list.GetSameRules() {
		return err
	}
	var rules []fleet.Daemon
	for _, d := range list.GetDaemons() {
		rules = append(rules, fleet.Daemon{ID: d.GetId(), Address: d.GetAddress(), Rules: d.GetRules()})
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "rules differ: "+spelling.Visible(fleet.RulesDiffer(rules)))
	return cmdline.ExitCode(cmdline.ExitError)
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

// readRegister returns the daemons in the register, and the time at which it was read, by
// the clock of Redis.
func readRegister(ctx context.Context, r settings.Redis) ([]fleet.Daemon, time.Time, error) {
	silent := slog.New(slog.DiscardHandler)
	redisconn.LogClient(silent)
	r.Timeout = max(r.Timeout, patience)
	conn, err := reach.Redis(r, silent)
	if err != nil {
		return nil, time.Time{}, err
	}
	daemons, at, err := fleet.Register{Redis: conn}.Daemons(ctx)
	if err != nil {
		err = fmt.Errorf("the register of daemons cannot be read (redis.mode %s, redis.addresses %s): %w", r.Mode, strings.Join(r.Addresses, ","), err)
	}
	return daemons, at, errors.Join(err, conn.Close())
}

func printDaemons(w io.Writer, list *adminv1.ListDaemonsResponse) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tADDRESS\tVERSION\tTAGS\tSTATE\tRULES\tCHANGE\tUP\tSEEN")
	at := list.GetAt().AsTime()
	for _, d := range list.GetDaemons() {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s ago\n", spelling.Visible(d.GetId()), spelling.Visible(d.GetAddress()), cmp.Or(spelling.Visible(d.GetVersion()), "-"),
			numberOrDash(d.GetHashTags()), numberOrDash(d.GetStateFormat()), cmp.Or(spelling.Visible(fleet.ShortRules(d.GetRules())), "-"), cmp.Or(spelling.Visible(d.GetChange()), "-"),
			timespan.Format(at.Sub(d.GetStarted().AsTime())), timespan.Format(at.Sub(d.GetSeen().AsTime())))
	}
	return t.Flush()
}

// numberOrDash formats a number, and 0 as a dash.
func numberOrDash(n uint32) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}
