package sizing

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
)

// asked says what the load is.
func (l load) asked() string {
	limits := "1 limit"
	if l.limits > 1 {
		limits = fmt.Sprintf("%d limits", l.limits)
	}
	return fmt.Sprintf("%s requests a second with %s each", words.Thousands(l.decisions), limits)
}

// paragraph is a name, what is needed, and how that comes to be.
type paragraph struct {
	name, needed string
	reasons      []string
}

// String formats the plan for people.
func (p plan) String() string {
	var text strings.Builder
	for _, part := range p.paragraphs() {
		fmt.Fprintf(&text, "%-10s  %s\n", part.name, part.needed)
		for _, reason := range part.reasons {
			fmt.Fprintf(&text, "%12s%s\n", "", reason)
		}
	}
	return text.String()
}

func (p plan) paragraphs() []paragraph {
	load := paragraph{"Load", fmt.Sprintf("%s, %s keys", p.asked(), words.Thousands(p.keys)), []string{
		fmt.Sprintf("No processor is to be busy for more than %d%% of the time.", p.busy),
	}}
	if p.memory {
		return []paragraph{load, p.daemonAlone(), {"Memory", mib(p.daemonMemory()), []string{
			p.statesText(),
			mib(daemonBytes) + " at least",
			p.maxKeys(),
		}}}
	}
	return []paragraph{load, p.servers(), p.redisMemory(), p.daemons(), {"Memory", mib(daemonBytes) + " for each daemon", p.outage()}}
}

func (p plan) daemonAlone() paragraph {
	return paragraph{"Daemon", fmt.Sprintf("1 with %s", plural(int64(p.cpus), "CPU")), []string{
		fmt.Sprintf("%s = %.2f CPUs; / %d%% = %.2f", product(p.decisions, p.daemonTime), p.daemonCPUs, p.busy, p.daemonCPUs/p.share()),
		"Its limits are its own: a second daemon needs store: redis.",
	}}
}

func (p plan) daemons() paragraph {
	each := fmt.Sprintf("%g CPUs", p.cpus)
	if p.cpus == 1 {
		each = "1 CPU"
	}
	total := p.daemonCPUs / p.share()
	return paragraph{"Daemons", fmt.Sprintf("%d with %s each", p.needed+p.spare, each), []string{
		fmt.Sprintf("%s = %.2f CPUs; / %d%% = %.2f", product(p.decisions, p.daemonTime), p.daemonCPUs, p.busy, total),
		fmt.Sprintf("%.2f / %s = %d, and %d to spare", total, each, p.needed, p.spare),
	}}
}

// servers says which Redis is needed.
func (p plan) servers() paragraph {
	one := fmt.Sprintf("one server: %s = %.2f CPUs", product(p.decisions*p.limits, p.redis), p.oneServer)
	if !p.isCluster {
		return paragraph{"Redis", "1 server, with a replica behind Sentinel", []string{one + " of its one"}}
	}
	if p.oneServer > p.share() {
		one += " of its one: too busy"
	}
	reasons := []string{one}
	if p.charges > p.limits {
		reasons = append(reasons, "Limits with several hash tags are checked, then charged: x 2.",
			"Add --one-tag if they are of one rule, or the domain has a hash_tag.")
	}
	reasons = append(reasons,
		fmt.Sprintf("cluster: %s = %.2f CPUs", product(p.decisions*p.charges, p.chargeTime), p.redisCPUs),
		fmt.Sprintf("The busiest of %d masters has %d of %d hash tags: %.2f CPUs.", p.masters, p.busiestTags, p.tags, p.busiestCPUs),
		"redis.mode: cluster, redis.hash_tags: "+p.tagsText(),
		"One hash tag lies on one master. So for one key, or one value of a",
		fmt.Sprintf("domain's hash_tag, at most %s requests a second.", words.Thousands(p.ofOneTag())))
	return paragraph{"Redis", fmt.Sprintf("%d masters, with a replica each", p.masters), reasons}
}

func (p plan) tagsText() string {
	if p.tags == defaultTags {
		return fmt.Sprintf("%d, the default", p.tags)
	}
	return fmt.Sprint(p.tags)
}

func (p plan) redisMemory() paragraph {
	part := ""
	if p.isCluster {
		part = fmt.Sprintf(" x %d/%d", p.busiestTags, p.tags)
	}
	return paragraph{"maxmemory", mib(p.maxMemory()) + " for each master and replica", []string{
		fmt.Sprintf("%s keys x %d B%s = %s; x %g for room to spare", words.Thousands(p.keys), redisKeyBytes, part, mib(p.busiestBytes), redisSpare),
	}}
}

// outage says what a daemon needs while Redis is away.
func (p plan) outage() []string {
	if p.daemonMemory() <= daemonBytes {
		return []string{"That has room for a share of each key while Redis is away.", p.maxKeys()}
	}
	return []string{
		fmt.Sprintf("%s, if the share of each key has to fit while Redis is away:", mib(p.daemonMemory())),
		p.statesText(),
		p.maxKeys(),
	}
}

// statesText says how much memory a daemon has for states.
func (p plan) statesText() string {
	return fmt.Sprintf("%s keys x %d B = %s, at most two fifths of it", words.Thousands(p.keys), daemonKeyBytes, mib(float64(p.keys*daemonKeyBytes)))
}

func (p plan) maxKeys() string {
	const byDefault = 1_000_000
	if p.keys <= byDefault {
		return fmt.Sprintf("memory.max_keys: %d, the default", byDefault)
	}
	return fmt.Sprintf("memory.max_keys: %d", p.keys)
}

// product is how often something happens a second, and how long it takes.
func product(times int64, each time.Duration) string {
	return fmt.Sprintf("%s x %.1f us", words.Thousands(times), float64(each)/float64(time.Microsecond))
}

// mib formats bytes, rounded up to whole MiB.
func mib(bytes float64) string {
	return words.Thousands(int64(math.Ceil(bytes/(1<<20)))) + " MiB"
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
