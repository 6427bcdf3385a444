package ask

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// StatusCommand says on a screen how a daemon is, by its metrics.
func StatusCommand(load dial.Loader) *cobra.Command {
	to := dial.ToAdmin(load)
	window, asJSON := 2*time.Second, false
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show on one screen how a daemon is, and what is wrong",
		Long: `Shows who serves, Redis and its latency, the share of degraded answers, denials
by rule, the last reload, what is wrong and which command says more of it. Rates
are those of the next --window.

Exits with 0 when all is well, with 1 when something is wrong, and with 2 when
the daemon was not reached.`,
		Example: `  ratelimitd status
  ratelimitd status --admin-address 10.0.0.7:6070 --json`,
		Args: cmdline.NoArguments,
	}
	fs := cmd.Flags()
	fs.Var(cmdline.Wait(&window), "window", "how long to watch the daemon for rates")
	cmdline.BindJSON(fs, &asJSON, "it")
	to.Bind(fs)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := watch(cmd.Context(), &to, window)
		if err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", cmd.Root().Name(), spelling.VisibleLines(err.Error()))
			return cmdline.ExitCode(cmdline.ExitUnreached)
		}
		dial.AskQuietly(cmd, load, func(ctx context.Context, c adminv1.AdminServiceClient) {
			r, _ := c.ListDaemons(ctx, &adminv1.ListDaemonsRequest{})
			for _, d := range r.GetDaemons() {
				s.Daemons = append(s.Daemons, cmp.Or(d.GetAddress(), d.GetId()))
			}
		})
		if asJSON {
			err = cmdline.WriteValue(cmd.OutOrStdout(), s)
		} else {
			err = s.write(cmd.OutOrStdout(), cmd.Root().Name())
		}
		if err == nil && len(s.Wrong) > 0 {
			return cmdline.ExitCode(cmdline.ExitError)
		}
		return err
	}
	return cmd
}

// daemonStatus is what a status shows.
type daemonStatus struct {
	Address string `json:"address"`
	Version string `json:"version"`
	Serving bool   `json:"serving"`
	// Daemons are those that share the store, if the daemon says so to this caller, and
	// DaemonCount is how many they are.
	Daemons     []string `json:"daemons"`
	DaemonCount int      `json:"daemon_count"`
	Rules       int      `json:"rules"`
	// LastReload is the last successful load of limits.
	LastReload time.Time `json:"last_reload,omitzero"`
	Window     string    `json:"window"`
	// Requests and Denials are those of a second within the window.
	Requests float64 `json:"requests_per_second"`
	// Degraded is the share of the requests, 0 to 1.
	Degraded float64      `json:"degraded_share"`
	Redis    *redisStatus `json:"redis,omitempty"`
	Denials  []ruleDenial `json:"denials"`
	Wrong    []trouble    `json:"wrong"`
}

// redisStatus is how Redis answers.
type redisStatus struct {
	Nodes []string `json:"nodes"`
	// RoundTrip is the mean of the batches within the window, empty if there were none.
	RoundTrip string `json:"round_trip,omitempty"`
	Batches   uint64 `json:"batches"`
}

// ruleDenial is how many descriptors of a rule are denied in a second.
type ruleDenial struct {
	Domain string  `json:"domain"`
	Rule   string  `json:"rule"`
	Denied float64 `json:"per_second"`
}

// trouble is something that is wrong, and a command that says more.
type trouble struct {
	Text string `json:"text"`
	More string `json:"more"`
}

// watch takes the metrics of a daemon twice, a window apart.
func watch(ctx context.Context, to *dial.Target, window time.Duration) (*daemonStatus, error) {
	before, address, err := sampleOf(ctx, to)
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(window):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	after, _, err := sampleOf(ctx, to)
	if err != nil {
		return nil, err
	}
	return statusOf(address, before, after), nil
}

// statusOf reads a status from two samples.
func statusOf(address string, before, after sample) *daemonStatus {
	span := after.at.Sub(before.at)
	rise := func(name string, labels ...string) float64 {
		return max(0, after.sum(name, labels...)-before.sum(name, labels...))
	}
	s := &daemonStatus{
		Address: address, Version: strings.Join(after.labels("ratelimitd_build_info", "version"), " "), Serving: after.sum("ratelimitd_serving") == 1,
		Daemons: []string{}, DaemonCount: max(1, int(after.sum("ratelimitd_fleet_daemons"))), Rules: int(after.sum("ratelimitd_limits_rules")),
		Window: secondsOf(span), Requests: rise("ratelimitd_requests_total") / span.Seconds(), Denials: []ruleDenial{}, Wrong: []trouble{},
	}
	if at := after.sum("ratelimitd_limits_last_reload_success_timestamp_seconds"); at > 0 {
		s.LastReload = time.Unix(int64(at), 0).UTC()
	}
	if n := rise("ratelimitd_requests_total"); n > 0 {
		s.Degraded = min(1, rise("ratelimitd_degraded_answers_total")/n)
	}
	if nodes := after.labels("ratelimitd_redis_breaker_open", "node"); len(nodes) > 0 {
		s.Redis = &redisStatus{Nodes: nodes, Batches: after.batches - before.batches}
		if s.Redis.Batches > 0 {
			s.Redis.RoundTrip = secondsOf(time.Duration((after.batchSeconds - before.batchSeconds) / float64(s.Redis.Batches) * float64(time.Second)))
		}
	}
	for rule, n := range after.denied {
		if n -= before.denied[rule]; n > 0 {
			s.Denials = append(s.Denials, ruleDenial{Domain: rule[0], Rule: rule[1], Denied: n / span.Seconds()})
		}
	}
	slices.SortFunc(s.Denials, func(a, b ruleDenial) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Rule, b.Rule))
	})
	s.findTroubles(after, rise)
	return s
}

// findTroubles notes what is wrong. A gauge that the daemon does not have is not wrong.
func (s *daemonStatus) findTroubles(now sample, rise func(name string, labels ...string) float64) {
	add := func(isWrong bool, more, text string, args ...any) {
		if isWrong {
			s.Wrong = append(s.Wrong, trouble{Text: fmt.Sprintf(text, args...), More: more})
		}
	}
	add(!s.Serving, "ratelimitd health", "the health check fails: proxies and load balancers pass the daemon over")
	add(now.has("ratelimitd_limits_last_reload_successful", 0), "ratelimitd check FOLDER", "the limits files have errors: older limits are in force")
	add(now.has("ratelimitd_auth_last_reload_successful", 0), "ratelimitd check FOLDER --auth FILE", "the file of forward auth has errors: an older one is in force")
	add(now.has("ratelimitd_access_last_reload_successful", 0), "the daemon's log", "the file of tokens or callers has errors: an older one is in force")
	add(now.has("ratelimitd_fleet_rules_differ", 1), "ratelimitd daemons", "daemons that share the store have different rules")
	away := now.labels("ratelimitd_redis_breaker_open", "node", 1)
	for _, node := range away {
		add(true, "the daemon's log", "Redis does not answer at %s", node)
	}
	// Without requests no breaker opens.
	add(len(away) == 0 && now.has("ratelimitd_fleet_sign_in_failed", 1), "the daemon's log", "Redis does not answer, or refuses the daemon")
	add(s.Degraded > 0, "ratelimitd explain", "%.3g%% of the answers are degraded: Redis did not decide them", 100*s.Degraded)
	add(now.has("ratelimitd_assignments_loaded", 0), "the daemon's log", "assignments are not loaded yet: plans and blocks are not in force")
	add(now.sum("ratelimitd_assignments_left_out") > 0, "ratelimitd assignments", "there are more assignments than assignments.max: some are not in force")
	add(now.has("ratelimitd_xds_connected", 0), "the daemon's log", "the xDS server is not connected: the last limits are in force")
	add(rise("ratelimitd_memory_full_hits_total") > 0, "ratelimitd top", "the memory store is full")
	add(rise("ratelimitd_panics_total") > 0, "the daemon's log", "requests failed by a panic")
	add(rise("ratelimitd_decision_log_lines_total", "dropped", "failed") > 0, "the daemon's log", "the log of decisions loses lines")
}

// maxShownDenials is how many rules a screen has room for.
const maxShownDenials = 10

// write writes it for people. program is the name of the commands.
func (s *daemonStatus) write(out io.Writer, program string) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	state := "serves"
	if !s.Serving {
		state = "DOES NOT SERVE"
	}
	fmt.Fprintf(w, "daemon\t%s %s, ratelimitd %s\n", spelling.Visible(s.Address), state, spelling.Visible(s.Version))
	if s.DaemonCount > 1 || len(s.Daemons) > 1 {
		fmt.Fprintf(w, "shares with\t%d daemons in all  %s\n", s.DaemonCount, spelling.Visible(strings.Join(s.Daemons, " ")))
	}
	loaded := "never loaded"
	if !s.LastReload.IsZero() {
		loaded = "loaded " + timespan.Format(time.Since(s.LastReload).Truncate(time.Second)) + " ago"
	}
	fmt.Fprintf(w, "limits\t%s, %s\n", yamlfile.Plural(int64(s.Rules), "rule"), loaded)
	switch r := s.Redis; {
	case r == nil:
		fmt.Fprintln(w, "store\tin memory")
	case r.Batches == 0:
		fmt.Fprintf(w, "Redis\t%s, not asked just now\n", spelling.Visible(strings.Join(r.Nodes, " ")))
	default:
		fmt.Fprintf(w, "Redis\t%s, answers in %s (mean of %s)\n", spelling.Visible(strings.Join(r.Nodes, " ")), r.RoundTrip, yamlfile.Plural(int64(r.Batches), "round trip"))
	}
	fmt.Fprintf(w, "requests\t%.4g a second, %.3g%% degraded\n", s.Requests, 100*s.Degraded)
	if len(s.Denials) == 0 {
		fmt.Fprintln(w, "denied\tnone")
	}
	for i, d := range s.Denials[:min(len(s.Denials), maxShownDenials)] {
		what := ""
		if i == 0 {
			what = "denied"
		}
		fmt.Fprintf(w, "%s\t%.4g a second  %s  %s\n", what, d.Denied, spelling.ShellWord(d.Domain), spelling.Visible(d.Rule))
	}
	if n := len(s.Denials) - maxShownDenials; n > 0 {
		fmt.Fprintf(w, "\tand %s\n", yamlfile.Plural(int64(n), "more rule"))
	}
	for _, t := range s.Wrong {
		fmt.Fprintf(w, "WRONG\t%s; see %s\n", spelling.Visible(t.Text), strings.Replace(t.More, "ratelimitd ", program+" ", 1))
	}
	if len(s.Wrong) == 0 {
		fmt.Fprintln(w, "wrong\tnothing")
	}
	return w.Flush()
}

// secondsOf formats a span as messages do in JSON.
func secondsOf(d time.Duration) string { return fmt.Sprintf("%.6gs", d.Seconds()) }
