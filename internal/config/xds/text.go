package xds

import (
	"strings"

	"go.yaml.in/yaml/v3"

	xdsv3 "github.com/ratelimitd/ratelimitd/proto/ratelimit/xds/v3"
)

// The levels of a limits file, as far as messages have them.
type (
	domainLevel struct {
		Domain      string
		Descriptors []descriptorLevel `yaml:",omitempty"`
	}
	descriptorLevel struct {
		Key            string
		Value          string            `yaml:",omitempty"`
		RateLimit      *limitLevel       `yaml:"rate_limit,omitempty"`
		ShadowMode     bool              `yaml:"shadow_mode,omitempty"`
		QuotaMode      bool              `yaml:"quota_mode,omitempty"`
		DetailedMetric bool              `yaml:"detailed_metric,omitempty"`
		Metadata       map[string]any    `yaml:",omitempty"`
		Descriptors    []descriptorLevel `yaml:",omitempty"`
	}
	limitLevel struct {
		Name      string          `yaml:",omitempty"`
		Unlimited bool            `yaml:",omitempty"`
		Requests  *uint32         `yaml:"requests_per_unit,omitempty"`
		Unit      any             `yaml:",omitempty"`
		Replaces  []replacesLevel `yaml:",omitempty"`
	}
	replacesLevel struct{ Name string }
)

// textOf returns a domain as a limits file, so everything that holds for files holds for
// it.
func textOf(c *xdsv3.RateLimitConfig) ([]byte, error) {
	return yaml.Marshal(domainLevel{c.GetDomain(), levelsOf(c.GetDescriptors())})
}

func levelsOf(list []*xdsv3.RateLimitDescriptor) []descriptorLevel {
	levels := make([]descriptorLevel, len(list))
	for i, d := range list {
		levels[i] = descriptorLevel{
			Key: d.GetKey(), Value: d.GetValue(), RateLimit: limitOf(d.GetRateLimit()),
			ShadowMode: d.GetShadowMode(), QuotaMode: d.GetQuotaMode(), DetailedMetric: d.GetDetailedMetric(),
			Metadata: d.GetMetadata().AsMap(), Descriptors: levelsOf(d.GetDescriptors()),
		}
	}
	return levels
}

func limitOf(p *xdsv3.RateLimitPolicy) *limitLevel {
	if p == nil {
		return nil
	}
	l := &limitLevel{Name: p.GetName(), Unlimited: p.GetUnlimited()}
	if !l.Unlimited || p.RequestsPerUnit != 0 {
		l.Requests = &p.RequestsPerUnit
	}
	if !l.Unlimited || p.GetUnit() != 0 {
		l.Unit = int32(p.GetUnit())
		if name := xdsv3.RateLimitUnit_name[int32(p.GetUnit())]; p.GetUnit() != 0 && name != "" {
			l.Unit = strings.ToLower(strings.TrimPrefix(name, "RATE_LIMIT_UNIT_"))
		}
	}
	for _, r := range p.GetReplaces() {
		l.Replaces = append(l.Replaces, replacesLevel{r.GetName()})
	}
	return l
}
