package daemon

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/statsd"
)

// datadogTags are the variables by which Datadog's agent tags a process, and the tags
// that its clients make of them.
var datadogTags = map[string]string{
	"DD_ENTITY_ID": "dd.internal.entity_id", "DD_ENV": "env", "DD_SERVICE": "service", "DD_VERSION": "version",
}

// statsdOf returns what is sent to a statsd server.
func statsdOf(s settings.Settings, log *slog.Logger) (server.Statsd, error) {
	o := s.Statsd
	if o.Address == "" {
		return server.Statsd{}, nil
	}
	rules := make([]statsd.Rule, len(o.Rules))
	for i, r := range o.Rules {
		var err error
		if rules[i], err = statsd.NewRule(r.Pattern, r.Name, r.Tags); err != nil {
			return server.Statsd{}, fmt.Errorf("statsd.rules: rule %d: %w", i+1, err)
		}
	}
	tags := make(map[string]string)
	if o.Dog {
		for variable, tag := range datadogTags {
			tags[tag] = os.Getenv(variable)
		}
	}
	maps.Copy(tags, o.Tags)
	sender := statsd.New(statsd.Options{
		Network: string(o.Protocol), Address: o.Address, Prefix: o.Prefix, Tags: tags, Dog: o.Dog, Rules: rules, Log: log, Now: time.Now,
	})
	return server.Statsd{Sender: sender, Every: o.Interval, Alone: s.Metrics.Names != settings.NamesEnvoyproxy}, nil
}
