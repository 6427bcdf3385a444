package filecmd

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/config/forwardauth"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/diff"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

type check struct {
	options limitsfile.Options
	auth    string
	diff    string
	json    bool
}

// CheckCommand validates limits files, and says what they would change.
func CheckCommand() *cobra.Command {
	c := check{}
	cmd := &cobra.Command{
		Use:   "check PATH...",
		Short: "Validate limits files and show what they say",
		Long: `Validates limits files, or folders of them, together: as one daemon would load
them; and with --auth the file for forward auth of that daemon. The path - is
standard input. Prints every error as

  file:line:column: path: what was found, what is allowed

and exits with 1; or, if there is none, a table of all limits in plain words,
and warnings, which begin the same way, for limits and rules that can have no
effect, and for what --lenient accepts.

With --diff it says instead what changes for requests when the new files replace
the old ones, and exits with 2 if anything changes, and with 0 if nothing does.
How the files are written makes no difference.`,
		Example: `  ratelimitd check deploy/limits
  ratelimitd check deploy/limits --auth auth.yaml
  git show main:limits/api.yaml | ratelimitd check --diff - limits/api.yaml`,
		Args: cmdline.AtLeastOne("a limits file or a folder of them"),
		RunE: func(cmd *cobra.Command, paths []string) error {
			c.options.Input = cmd.InOrStdin()
			if cmd.Flags().Changed("diff") {
				return c.showDiff(cmd, paths)
			}
			return c.run(cmd, paths)
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&c.options.Lenient, "lenient", false, "warn of what envoyproxy/ratelimit accepts, as with limits.lenient")
	fs.BoolVar(&c.options.MergeDomains, "merge-domains", false, "let several files say something of one domain, as with limits.merge_domains")
	fs.StringVar(&c.auth, "auth", "", "also validate a file for forward auth, as that of auth.path")
	fs.StringVar(&c.diff, "diff", "", "say what changes when PATH... replace these old files, or a folder of them")
	fs.BoolVar(&c.json, "json", false, "print what was found as a line of JSON; with --diff a line for each difference")
	cmd.MarkFlagsMutuallyExclusive("auth", "diff")
	return cmd
}

// checked is what check --json prints.
type checked struct {
	Errors   []finding       `json:"errors"`
	Warnings []finding       `json:"warnings"`
	Domains  []checkedDomain `json:"domains"`
}

// finding is an error or a warning. Line and column are 0 for the whole file.
type finding struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Path   string `json:"path"`
	Text   string `json:"text"`
}

type checkedDomain struct {
	Name    string `json:"name"`
	File    string `json:"file"`
	Line    int    `json:"line"`
	HashTag string `json:"hash_tag"`
	// Unmatched is what descriptors without a rule get: allow, deny or default, as in
	// limits.unmatched.
	Unmatched string        `json:"unmatched"`
	Rules     []checkedRule `json:"rules"`
}

type checkedRule struct {
	Path      string         `json:"path"`
	File      string         `json:"file"`
	Line      int            `json:"line"`
	Plan      string         `json:"plan"`
	Unlimited bool           `json:"unlimited"`
	Shadow    bool           `json:"shadow_mode"`
	Quota     bool           `json:"quota_mode"`
	Share     bool           `json:"share_threshold"`
	Limits    []checkedLimit `json:"limits"`
}

// checkedLimit has the same fields as a limit in the admin API.
type checkedLimit struct {
	Name      string `json:"name"`
	Algorithm string `json:"algorithm"`
	Requests  int64  `json:"requests"`
	Period    string `json:"period"`
	Capacity  int64  `json:"capacity"`
	Text      string `json:"text"`
	NextReset string `json:"next_reset,omitempty"`
	// Calendar is nil for a limit with a period.
	Calendar *checkedCalendar `json:"calendar,omitempty"`
}

type checkedCalendar struct {
	Unit     string `json:"unit"`
	TimeZone string `json:"time_zone"`
	Starts   string `json:"starts"`
}

// CheckFiles does what the command does for these files, or folders of them.
func CheckFiles(cmd *cobra.Command, o limitsfile.Options, paths ...string) error {
	return (&check{options: o}).run(cmd, paths)
}

func (c *check) run(cmd *cobra.Command, paths []string) error {
	rules, err := c.options.Load(paths...)
	errs, err := fileErrors(err)
	if err != nil {
		return err
	}
	endpoints, more, err := c.endpoints()
	if err != nil {
		return err
	}
	errs = append(errs, more...)
	found := checked{Errors: []finding{}, Warnings: []finding{}, Domains: []checkedDomain{}}
	for _, e := range errs {
		found.Errors = append(found.Errors, finding{File: e.File, Line: e.Line, Column: e.Column, Path: e.Path, Text: e.Text()})
		if !c.json {
			fmt.Fprintln(cmd.ErrOrStderr(), e.Error())
		}
	}
	if len(errs) > 0 {
		if c.json {
			if err := cmdline.WriteValue(cmd.OutOrStdout(), found); err != nil {
				return err
			}
		}
		return cmdline.ExitCode(cmdline.ExitError)
	}
	return c.show(cmd, found, rules, endpoints)
}

// show shows valid files; endpoints may be nil.
func (c *check) show(cmd *cobra.Command, found checked, rules *rules.Set, endpoints *forwardauth.File) error {
	warnings := rules.Warnings()
	if endpoints != nil {
		warnings = append(slices.Clone(warnings), endpoints.Warnings(rules.HasDomain)...)
	}
	for _, w := range warnings {
		found.Warnings = append(found.Warnings, finding{File: w.File, Line: w.Line, Column: w.Column, Path: w.Path, Text: w.Text})
		if !c.json {
			fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+w.String())
		}
	}
	if !c.json {
		return showTables(cmd.OutOrStdout(), rules, endpoints)
	}
	found.addRules(rules)
	return cmdline.WriteValue(cmd.OutOrStdout(), found)
}

// endpoints loads the file for forward auth; nil without one. Its own errors are returned
// separately.
func (c *check) endpoints() (*forwardauth.File, yamlfile.Errors, error) {
	if c.auth == "" {
		return nil, nil, nil
	}
	file, err := forwardauth.Load(c.auth)
	errs, err := fileErrors(err)
	return file, errs, err
}

// fileErrors returns the errors in files. It returns any other error as it is.
func fileErrors(err error) (yamlfile.Errors, error) {
	var errs yamlfile.Errors
	if errors.As(err, &errs) {
		return errs, nil
	}
	return nil, err
}

// showTables prints valid files; endpoints may be nil.
func showTables(out io.Writer, rules *rules.Set, endpoints *forwardauth.File) error {
	if err := words.WriteTable(out, rules, time.Now()); err != nil || endpoints == nil {
		return err
	}
	fmt.Fprintln(out)
	return endpoints.WriteTable(out)
}

func (c *checked) addRules(rules *rules.Set) {
	now := time.Now()
	for _, d := range rules.Domains() {
		domain := checkedDomain{Name: d.Name, File: d.File, Line: d.Line, HashTag: d.HashTag, Unmatched: d.Unmatched.String(), Rules: []checkedRule{}}
		for _, r := range d.Rules() {
			rule := checkedRule{Path: r.Path(), File: r.File, Line: r.Line, Plan: r.Plan, Unlimited: r.Unlimited, Shadow: r.ShadowMode, Quota: r.QuotaMode, Share: r.Shared != nil, Limits: []checkedLimit{}}
			for _, l := range r.Limits {
				rule.Limits = append(rule.Limits, checkedLimitOf(l, now))
			}
			domain.Rules = append(domain.Rules, rule)
		}
		c.Domains = append(c.Domains, domain)
	}
}

func checkedLimitOf(l *bucket.Limit, now time.Time) checkedLimit {
	c := checkedLimit{
		Name: l.Name, Algorithm: l.Algorithm.String(), Requests: l.Requests, Period: secondsText(l.Period), Capacity: l.Capacity,
		Text: words.Limit(l) + words.NextReset(l, now),
	}
	if b, ok := l.Borders(now.UnixMicro()); ok {
		c.NextReset = time.UnixMicro(b[1]).UTC().Format(time.RFC3339)
		c.Calendar = &checkedCalendar{Unit: l.Calendar.Unit.String(), TimeZone: l.Calendar.Zone.String(), Starts: l.Calendar.Starts.String()}
	}
	return c
}

// secondsText formats a span as protobuf JSON does: "60s", "0.250s".
func secondsText(d time.Duration) string {
	if d%time.Second == 0 {
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return fmt.Sprintf("%d.%03ds", d/time.Second, d%time.Second/time.Millisecond)
}

// showDiff says what the files at the paths would change.
func (c *check) showDiff(cmd *cobra.Command, paths []string) error {
	if c.diff == "-" && slices.Contains(paths, "-") {
		return errors.New("found - twice; allowed: standard input for the old files or for the new ones")
	}
	before, beforeErrs, err := c.load([]string{c.diff})
	if err != nil {
		return err
	}
	after, afterErrs, err := c.load(paths)
	for _, e := range append(beforeErrs, afterErrs...) {
		fmt.Fprintln(cmd.ErrOrStderr(), e.Error())
	}
	if err != nil {
		return err
	}
	if len(beforeErrs)+len(afterErrs) > 0 {
		return cmdline.ExitCode(cmdline.ExitError)
	}
	differences := diff.Between(before, after)
	if c.json {
		err = writeDifferencesJSON(cmd.OutOrStdout(), differences)
	} else {
		err = writeDifferences(cmd.OutOrStdout(), differences)
	}
	if err == nil && len(differences) > 0 {
		return cmdline.ExitCode(cmdline.ExitDifferent)
	}
	return err
}

// load loads limits files. Their own errors are returned separately.
func (c *check) load(paths []string) (*rules.Set, yamlfile.Errors, error) {
	rules, err := c.options.Load(paths...)
	errs, err := fileErrors(err)
	return rules, errs, err
}

func writeDifferencesJSON(out io.Writer, differences []diff.Difference) error {
	for _, d := range differences {
		if err := cmdline.WriteValue(out, d); err != nil {
			return err
		}
	}
	return nil
}

func writeDifferences(out io.Writer, differences []diff.Difference) error {
	if len(differences) == 0 {
		_, err := fmt.Fprintln(out, "nothing is different for any request")
		return err
	}
	domain := ""
	for i, d := range differences {
		if i == 0 || d.Domain != domain {
			domain = d.Domain
			fmt.Fprintf(out, "domain %s\n", yamlfile.Printable(domain))
		}
		rule := ""
		if d.Rule != "" {
			rule = d.Rule + ": "
		}
		if _, err := fmt.Fprintf(out, "  %-8s  %s%s\n", d.Effect, rule, d.Text); err != nil {
			return err
		}
	}
	return nil
}
