package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

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

func checkCommand() *cobra.Command {
	c := check{}
	cmd := &cobra.Command{
		Use:   "check PATH...",
		Short: "Validate limits files and show what they say",
		Long: `Validates limits files, or folders of them, together: as one daemon would load
them; and with --auth the file for forward auth of that daemon. The path - is
standard input. Prints every error as

  file:line:column: path: what was found, what is allowed

and exits with 1; or, where there is none, a table of all limits in plain words,
and warnings, which begin so, for limits and inForce that can have no effect, for
patterns that cost much to match, and for what --lenient accepts.

With --diff it says instead what becomes different for requests when the new
files take the place of the old ones, and exits with 2 if anything does, and
with 0 if nothing does. How the files are written makes no difference.`,
		Example: `  ratelimitd check deploy/limits
  ratelimitd check deploy/limits --auth auth.yaml
  git show main:limits/api.yaml | ratelimitd check --diff - limits/api.yaml`,
		Args: atLeastOne("a limits file or a folder of them"),
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
	fs.StringVar(&c.diff, "diff", "", "say what becomes different when PATH... take the place of these old files, or of a folder of them")
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

// finding is an error or a warning. Line and column are 0 for a file as a whole.
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
	// Unmatched is what descriptors without a rule get: allow, deny or default, as
	// limits.unmatched says.
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

// checkedLimit has the fields of a limit as the admin API has them.
type checkedLimit struct {
	Name      string `json:"name"`
	Algorithm string `json:"algorithm"`
	Requests  int64  `json:"requests"`
	Period    string `json:"period"`
	Capacity  int64  `json:"capacity"`
	Text      string `json:"text"`
}

func (c *check) run(cmd *cobra.Command, paths []string) error {
	inForce, err := c.options.Load(paths...)
	errs, err := fileErrors(err)
	if err != nil {
		return err
	}
	var endpoints *forwardauth.File
	if c.auth != "" {
		var more yamlfile.Errors
		endpoints, err = forwardauth.Load(c.auth)
		if more, err = fileErrors(err); err != nil {
			return err
		}
		errs = append(errs, more...)
	}
	found := checked{Errors: []finding{}, Warnings: []finding{}, Domains: []checkedDomain{}}
	for _, e := range errs {
		found.Errors = append(found.Errors, finding{e.File, e.Line, e.Column, e.Path, e.Text()})
		if !c.json {
			fmt.Fprintln(cmd.ErrOrStderr(), e.Error())
		}
	}
	if len(errs) == 0 {
		warnings := inForce.Warnings()
		if endpoints != nil {
			warnings = append(slices.Clone(warnings), endpoints.Warnings(inForce.HasDomain)...)
		}
		for _, w := range warnings {
			found.Warnings = append(found.Warnings, finding{w.File, w.Line, w.Column, w.Path, w.Text})
			if !c.json {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+w.String())
			}
		}
	}
	switch {
	case c.json:
		if len(errs) == 0 {
			found.addRules(inForce)
		}
		err = printJSON(cmd.OutOrStdout(), found)
	case len(errs) == 0:
		err = showTables(tableOn(cmd.OutOrStdout()), inForce, endpoints)
	}
	if err == nil && len(errs) > 0 {
		return exitCode(exitError)
	}
	return err
}

// fileErrors returns the errors of files. It returns any other error as it is.
func fileErrors(err error) (yamlfile.Errors, error) {
	var errs yamlfile.Errors
	if errors.As(err, &errs) {
		return errs, nil
	}
	return nil, err
}

// showTables prints good files; endpoints may be nil.
func showTables(out io.Writer, inForce *rules.Set, endpoints *forwardauth.File) error {
	if err := words.WriteTable(out, inForce); err != nil || endpoints == nil {
		return err
	}
	fmt.Fprintln(out)
	return endpoints.WriteTable(out)
}

func (c *checked) addRules(inForce *rules.Set) {
	for _, d := range inForce.Domains() {
		domain := checkedDomain{Name: d.Name, File: d.File, Line: d.Line, HashTag: d.HashTag, Unmatched: d.Unmatched.String(), Rules: []checkedRule{}}
		for _, r := range d.Rules() {
			rule := checkedRule{Path: r.Path(), File: r.File, Line: r.Line, Plan: r.Plan, Unlimited: r.Unlimited, Shadow: r.ShadowMode, Quota: r.QuotaMode, Share: r.ShareThreshold, Limits: []checkedLimit{}}
			for _, l := range r.Limits {
				rule.Limits = append(rule.Limits, checkedLimit{
					l.Name, l.Algorithm.String(), l.Requests, secondsText(l.Period), l.Capacity, words.Limit(l),
				})
			}
			domain.Rules = append(domain.Rules, rule)
		}
		c.Domains = append(c.Domains, domain)
	}
}

// showDiff says what becomes different with the files at the paths.
func (c *check) showDiff(cmd *cobra.Command, paths []string) error {
	if c.diff == "-" && slices.Contains(paths, "-") {
		return errors.New("found - twice; allowed: standard input for the old files or for the new ones")
	}
	var loaded [2]*rules.Set
	var failed bool
	for i, of := range [][]string{{c.diff}, paths} {
		inForce, err := c.options.Load(of...)
		errs, err := fileErrors(err)
		if err != nil {
			return err
		}
		for _, e := range errs {
			fmt.Fprintln(cmd.ErrOrStderr(), e.Error())
			failed = true
		}
		loaded[i] = inForce
	}
	if failed {
		return exitCode(exitError)
	}
	differences := diff.Between(loaded[0], loaded[1])
	out := tableOn(cmd.OutOrStdout())
	domain := ""
	for i, d := range differences {
		if c.json {
			if err := printJSON(cmd.OutOrStdout(), d); err != nil {
				return err
			}
			continue
		}
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
	if len(differences) > 0 {
		return exitCode(exitDifferent)
	}
	if !c.json {
		fmt.Fprintln(out, "nothing is different for any request")
	}
	return nil
}
