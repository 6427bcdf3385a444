package replay

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// yamlDomain, yamlDescriptor and yamlLimit are those of a limits file.
type yamlDomain struct {
	Domain      string            `yaml:"domain"`
	Descriptors []*yamlDescriptor `yaml:"descriptors"`
}

type yamlDescriptor struct {
	Key            string               `yaml:"key"`
	Value          string               `yaml:"value,omitempty"`
	ShadowMode     bool                 `yaml:"shadow_mode,omitempty"`
	QuotaMode      bool                 `yaml:"quota_mode,omitempty"`
	ShareThreshold bool                 `yaml:"share_threshold,omitempty"`
	RateLimit      *yamlLimit           `yaml:"rate_limit,omitempty,flow"`
	RateLimits     []yamlLimit          `yaml:"rate_limits,omitempty"`
	Plans          map[string]yaml.Node `yaml:"plans,omitempty"`
	Descriptors    []*yamlDescriptor    `yaml:"descriptors,omitempty"`
}

type yamlLimit struct {
	Name       string `yaml:"name,omitempty"`
	Algorithm  string `yaml:"algorithm"`
	Requests   int64  `yaml:"requests"`
	Period     string `yaml:"period"`
	Burst      int64  `yaml:"burst,omitempty"`
	SubWindows int64  `yaml:"sub_windows,omitempty"`
	Postpaid   any    `yaml:"postpaid,omitempty"` // true or "auto"
}

// WriteFits writes the proposals as limits files, one behind the other for each
// domain, after a comment. They have the rules that were asked and what was proposed
// for them, and nothing of other rules.
func (r *Report) WriteFits(out io.Writer) error {
	var domains []*yamlDomain
	written := make(map[*config.Rule]bool)
	for i := range r.Fits {
		f := &r.Fits[i]
		if written[f.rule] {
			continue
		}
		written[f.rule] = true
		if n := len(domains); n == 0 || domains[n-1].Domain != f.Domain {
			domains = append(domains, &yamlDomain{Domain: f.Domain})
		}
		if err := domains[len(domains)-1].add(f.rule, r.Fits); err != nil {
			return err
		}
	}
	for _, d := range domains {
		var text bytes.Buffer
		fmt.Fprintf(&text, "# limits file of the domain %s: the rules that were asked, with these numbers\n", yamlfile.Printable(d.Domain))
		e := yaml.NewEncoder(&text)
		e.SetIndent(2)
		if err := cmp.Or(e.Encode(d), e.Close()); err != nil {
			return err
		}
		if _, err := out.Write(text.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// add adds a rule with the limits that are proposed for it.
func (d *yamlDomain) add(rule *config.Rule, fits []Fit) error {
	list := &d.Descriptors
	var at *yamlDescriptor
	for _, e := range rule.Entries() {
		i := slices.IndexFunc(*list, func(below *yamlDescriptor) bool { return below.Key == e.Key && below.Value == e.Value })
		if i < 0 {
			i = len(*list)
			*list = append(*list, &yamlDescriptor{Key: e.Key, Value: e.Value})
		}
		at = (*list)[i]
		list = &at.Descriptors
	}
	var limits []yamlLimit
	for _, l := range rule.Limits {
		limits = append(limits, proposed(rule, l, fits))
	}
	at.ShadowMode, at.QuotaMode, at.ShareThreshold = rule.ShadowMode, rule.QuotaMode, rule.ShareThreshold
	switch {
	case rule.Plan != "":
		return at.addPlan(rule.Plan, limits)
	case len(limits) == 1:
		at.RateLimit = &limits[0]
	default:
		at.RateLimits = limits
	}
	return nil
}

func (d *yamlDescriptor) addPlan(name string, limits []yamlLimit) error {
	if d.Plans == nil {
		d.Plans = make(map[string]yaml.Node)
	}
	var n yaml.Node
	var err error
	if len(limits) == 1 {
		err = n.Encode(limits[0])
	} else {
		err = n.Encode(limits)
	}
	d.Plans[name] = n
	return err
}

// proposed returns a limit of a rule with the numbers proposed for it, or with its
// own if there are none.
func proposed(rule *config.Rule, l *bucket.Limit, fits []Fit) yamlLimit {
	y := yamlLimit{Name: l.Name, Algorithm: l.Algorithm.String(), Requests: l.Requests, Period: period(l.Period)}
	burst := l.Burst
	for i := range fits {
		if f := &fits[i]; f.rule == rule && f.limit == l && f.Problem == "" {
			y.Requests, burst = f.ProposedRequests, f.ProposedBurst
		}
	}
	if l.Algorithm.IsBucket() && burst != y.Requests {
		y.Burst = burst
	}
	if l.Algorithm == bucket.SlidingWindow && l.SubWindows != bucket.DefaultSubWindows {
		y.SubWindows = l.SubWindows
	}
	switch l.Postpaid {
	case bucket.PostpaidAlways:
		y.Postpaid = true
	case bucket.PostpaidAuto:
		y.Postpaid = l.Postpaid.String()
	}
	return y
}
