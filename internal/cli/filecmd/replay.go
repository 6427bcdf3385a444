package filecmd

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/config/forwardauth"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
	"github.com/ratelimitd/ratelimitd/internal/replay"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
)

// replaying are the flags of replay.
type replaying struct {
	version         string
	limits, against []string
	load            limitsfile.Options
	mapFile         string
	endpoint        string
	table           bool
	domain          string
	window, maxKeys int64
	html            string
	json            bool
	denyUnmatched   bool
	shadow, quota   bool
	// isSet reports whether a flag was given.
	isSet func(flag string) bool
}

// ReplayCommand decides recorded requests again. The version appears in its reports.
func ReplayCommand(version string) *cobra.Command {
	r := replaying{version: version, window: replay.DefaultWindow, maxKeys: replay.DefaultMaxKeys}
	cmd := &cobra.Command{
		Use:   "replay [--limits NEW [--against OLD]] LOG...",
		Short: "Say what limits would have done to recorded requests",
		Long: `Decides recorded requests again, in virtual time and with the daemon's own
arithmetic. Says per rule and limit what was asked and denied, before and after,
and who is denied: when first, and for how long at most.

NEW are limits files or folders: all that a daemon would load, since whatever is
in none of them counts as without a rule. Before is what was recorded, or with
--against what the limits OLD would have done. Without --limits the limits in
the log itself decide, and every decision is compared with the recorded one: the
exit code is then 0 if all are equal and the log lacks none, and 2 otherwise.

A daemon leaves decisions out of its log by default (decisions.per_subject); the
log says how many, and the report begins with it.

A LOG is the daemon's log of decisions, or with --map or --csv an access log or
a table; - is standard input. Several are merged by time: decisions*.jsonl* is a
log with its rotated files. Files compressed with gzip or zstd are read as they
are, whatever their name.`,
		Example: `  ratelimitd replay --limits new/ decisions*.jsonl*
  ratelimitd replay --limits new/ --against limits/ decisions.jsonl
  ratelimitd replay --limits new/ --html report.html decisions.jsonl
  ratelimitd replay --limits limits/ --map auth.yaml envoy-access.log.gz
  ratelimitd replay --limits limits/ --csv --domain api requests.csv`,
		Args: cmdline.AtLeastOne("a log, or - for standard input"),
	}
	const asRecorded = "; if not given, as the log says"
	fs := cmd.Flags()
	r.isSet = fs.Changed
	fs.StringSliceVar(&r.limits, "limits", nil, "limits files or folders that decide: all of them")
	fs.StringSliceVar(&r.against, "against", nil, "limits files or folders to compare with, in place of what was recorded")
	fs.BoolVar(&r.load.Lenient, "lenient", false, "accept in limits files what envoyproxy/ratelimit accepts, as with limits.lenient"+asRecorded)
	fs.BoolVar(&r.load.MergeDomains, "merge-domains", false, "let several files say something of one domain, as with limits.merge_domains"+asRecorded)
	fs.StringVar(&r.mapFile, "map", "", "the logs are access logs: a file for forward auth says which descriptors a request has")
	fs.StringVar(&r.endpoint, "endpoint", "", "which endpoint of the file of --map, if it has several")
	fs.BoolVar(&r.table, "csv", false, "the logs are tables: columns time, domain and cost, and entries")
	fs.StringVar(&r.domain, "domain", "", "domain of a table without that column")
	fs.Var(cmdline.Number(&r.window, 1, 1_000_000), "window", "lines that are held to put them in order")
	fs.Var(cmdline.Number(&r.maxKeys, 1, math.MaxInt32), "max-keys", "most keys whose state is kept, some 200 bytes each")
	fs.StringVar(&r.html, "html", "", "write a report with charts to this file")
	fs.BoolVar(&r.denyUnmatched, "deny-unmatched", false, "deny descriptors without a rule, as with limits.unmatched: deny"+asRecorded)
	fs.BoolVar(&r.shadow, "shadow-mode", false, "deny nothing, as with limits.shadow_mode"+asRecorded)
	fs.BoolVar(&r.quota, "quota-mode", false, "treat all limits as quotas, as with limits.quota_mode"+asRecorded)
	cmdline.BindJSON(fs, &r.json, "the report")
	cmd.MarkFlagsMutuallyExclusive("map", "csv")
	for _, flag := range []string{"limits", "against", "map", "html"} {
		cmdline.Complete(cmd, flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		})
	}
	cmd.RunE = r.run
	return cmd
}

func (r *replaying) run(cmd *cobra.Command, names []string) error {
	names = finished(names)
	logs, err := r.open(cmd, names)
	defer func() {
		for _, l := range logs {
			l.Close()
		}
	}()
	if err != nil {
		return err
	}
	options, err := r.options(cmd, names, logs)
	if err != nil {
		return err
	}
	again, err := replay.New(options)
	if err != nil {
		return err
	}
	if err := again.Run(logs...); err != nil {
		return err
	}
	return r.print(cmd, again.Report())
}

// finished returns names without those of compressed files beside what they were made
// from: a daemon is writing them, or was killed while it did.
func finished(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		whole, isCompressed := strings.CutSuffix(name, ".gz")
		return isCompressed && slices.Contains(names, whole)
	})
}

// override applies the flags to settings.
func (r *replaying) override(s *decisionlog.Settings) {
	for _, f := range []struct {
		name string
		from bool
		to   *bool
	}{
		{name: "lenient", from: r.load.Lenient, to: &s.Lenient},
		{name: "merge-domains", from: r.load.MergeDomains, to: &s.MergeDomains},
		{name: "shadow-mode", from: r.shadow, to: &s.ShadowMode},
		{name: "quota-mode", from: r.quota, to: &s.QuotaMode},
		{name: "deny-unmatched", from: r.denyUnmatched, to: &s.DenyUnmatched},
	} {
		if r.isSet(f.name) {
			*f.to = f.from
		}
	}
}

// loadOptions returns how limits are read: as the first log that says so says.
func (r *replaying) loadOptions(logs []*replay.Log) limitsfile.Options {
	var s decisionlog.Settings
	for _, l := range logs {
		if said := l.Settings(); said != nil {
			s = *said
			break
		}
	}
	r.override(&s)
	return limitsfile.Options{Lenient: s.Lenient, MergeDomains: s.MergeDomains}
}

// warn warns of something odd, and goes on.
func warn(cmd *cobra.Command, text string) {
	fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+spelling.Visible(text))
}

// options loads the limits.
func (r *replaying) options(cmd *cobra.Command, names []string, logs []*replay.Log) (replay.Options, error) {
	o := replay.Options{
		MaxKeys: int(r.maxKeys), Settings: r.override,
		Sources: replay.Sources{Version: r.version, Logs: names, Limits: r.limits, Against: r.against},
	}
	o.Warn = func(text string) { warn(cmd, text) }
	if len(r.limits) == 0 {
		return o, r.needsNoLimits()
	}
	load := r.loadOptions(logs)
	var err error
	for flag, from := range map[string][]string{"limits": r.limits, "against": r.against} {
		if len(from) == 0 {
			continue
		}
		var rules *rules.Set
		if rules, err = load.Load(from...); err != nil {
			return o, fmt.Errorf("--%s: %w", flag, unprefixed(err))
		}
		if flag == "limits" {
			o.Limits = rules
		} else {
			o.Against = rules
		}
	}
	return o, nil
}

// needsNoLimits returns an error if the flags make no sense without --limits.
func (r *replaying) needsNoLimits() error {
	switch {
	case len(r.against) > 0:
		return errors.New("found --against without --limits; allowed: --limits NEW --against OLD, or --limits NEW alone to compare it with what was recorded")
	case r.table, r.mapFile != "":
		return fmt.Errorf("found --%s without --limits; allowed: --limits FILE, since only a log of decisions has limits of its own", map[bool]string{true: "csv", false: "map"}[r.table])
	}
	return nil
}

// unprefixed returns an error about limits without its leading subject, which a flag
// already names.
func unprefixed(err error) error {
	if inner := errors.Unwrap(err); inner != nil && err.Error() == "limits: "+inner.Error() {
		return inner
	}
	return err
}

// open opens the logs.
func (r *replaying) open(cmd *cobra.Command, names []string) (logs []*replay.Log, err error) {
	format := replay.Decisions
	switch {
	case r.table:
		format = func() replay.Format { return replay.Table(r.domain) }
	case r.mapFile != "":
		file, endpoint, err := r.endpointOf()
		if err != nil {
			return nil, err
		}
		format = func() replay.Format { return replay.Access(file, endpoint) }
	}
	for _, name := range names {
		l, err := replay.Open(name, cmd.InOrStdin(), format(), int(r.window))
		if err != nil {
			return logs, err
		}
		logs = append(logs, l)
	}
	return logs, nil
}

func (r *replaying) endpointOf() (*forwardauth.File, *forwardauth.Endpoint, error) {
	file, err := forwardauth.Load(r.mapFile)
	if err != nil {
		return nil, nil, fmt.Errorf("--map: %w", err)
	}
	var names []string
	for _, e := range file.Endpoints {
		names = append(names, e.Name)
	}
	switch e := file.Endpoint(r.endpoint); {
	case e != nil:
		return file, e, nil
	case r.endpoint == "" && len(file.Endpoints) == 1:
		return file, file.Endpoints[0], nil
	}
	return nil, nil, fmt.Errorf("--endpoint: found %q; allowed: one of %s, as %s has", r.endpoint, yamlfile.Commas(names), r.mapFile)
}

// print prints the report.
func (r *replaying) print(cmd *cobra.Command, report *replay.Report) error {
	if r.html != "" {
		if err := writeFile(r.html, report.WriteHTML); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	var err error
	if r.json {
		err = cmdline.WriteValue(cmd.OutOrStdout(), report)
	} else {
		err = report.WriteText(cmd.OutOrStdout())
	}
	if err == nil && report.IsDifferent() {
		return cmdline.ExitCode(cmdline.ExitDifferent)
	}
	return err
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
