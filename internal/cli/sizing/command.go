package sizing

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/flags"
)

// Bounds of what is asked for.
const (
	maxDecisions = 1_000_000_000
	maxKeys      = 1_000_000_000_000
	maxLimits    = 100
	maxCPUs      = 256
	maxSpare     = 1000
)

// Command says what daemons and Redis a load needs.
func Command() *cobra.Command {
	l := load{limits: 1, cpus: 1, busy: 60, spare: 1}
	store := "redis"
	cmd := &cobra.Command{
		Use:   "sizing --decisions NUMBER --keys NUMBER",
		Short: "Compute the daemons and the Redis that a load needs",
		Long: `Computes how many daemons a load needs, which Redis, how many masters and hash
tags, and how much memory, and shows the arithmetic. Asks nobody.

Decisions are requests a second at the peak. Keys are the states that are live
at once: for each limit the users, tenants or addresses that it counts within
its period.

The times that it multiplies are those of the project's benchmark, on two cores
that daemon, Redis and callers shared. Measure your machines with
make bench BENCH='-run ^redis-256$' and give --daemon-time and --redis-time.
They hold for all algorithms except sliding_log and concurrency, whose states
may be large.`,
		Example: `  ratelimitd sizing --decisions 50000 --keys 2000000
  ratelimitd sizing --decisions 2000 --keys 10000 --store memory`,
		Args: cmdline.NoArguments,
	}
	fs := cmd.Flags()
	fs.Var(required(flags.Number(&l.decisions, 1, maxDecisions)), "decisions", "requests to decide a second, at the peak")
	fs.Var(required(flags.Number(&l.keys, 1, maxKeys)), "keys", "states that are live at once")
	fs.Var(flags.Number(&l.limits, 1, maxLimits), "limits", "limits that each request is charged by")
	fs.BoolVar(&l.oneTag, "one-tag", false, "the limits of a request have one hash tag: they are of one rule, or of a domain with hash_tag")
	flags.BindWord(cmd, &store, []string{"redis", "memory"}, "store", "where state lives: redis, memory")
	fs.BoolVar(&l.cluster, "cluster", false, "a Redis Cluster, even where one server suffices")
	fs.BoolVar(&l.stream, "stream", false, "callers use the Go client or TakeStream, not a call for each request")
	fs.Var(processors(&l.cpus), "cpus", "processors of each daemon")
	fs.Var(flags.Number(&l.busy, 1, 100), "busy", "percent of the time for which a processor may be busy at the peak")
	fs.Var(flags.Number(&l.spare, 0, maxSpare), "spare", "daemons that may be away at the peak")
	fs.Var(cpuTime(&l.daemon), "daemon-time", "CPU time of the daemon for a request with one limit, on one Redis or in memory; the benchmark's if not given")
	fs.Var(cpuTime(&l.redis), "redis-time", "CPU time of one Redis for a limit that is charged; the benchmark's if not given")
	for _, name := range []string{"decisions", "keys"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // there is such a flag
		}
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		l.memory = store == "memory"
		if l.memory {
			for _, name := range []string{"one-tag", "cluster", "cpus", "spare", "redis-time"} {
				if cmd.Flags().Changed(name) {
					return fmt.Errorf("found --%s beside --store memory; allowed: it with --store redis, since a daemon without Redis is alone", name)
				}
			}
		}
		p, err := planFor(l.withMeasured())
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(cmd.OutOrStdout(), p)
		return err
	}
	return cmd
}

// withMeasured takes the times of the benchmark where none are given.
func (l load) withMeasured() load {
	if l.redis == 0 {
		l.redis = redisCharge
	}
	switch {
	case l.daemon != 0:
	case l.memory && l.stream:
		l.daemon = memoryStreamRequest
	case l.memory:
		l.daemon = memoryRequest
	case l.stream:
		l.daemon = redisStreamRequest
	default:
		l.daemon = redisRequest
	}
	return l
}

// required is a flag without a default.
func required(v flags.Value) flags.Value {
	v.Default = ""
	return v
}

// processors is a number of processors, or a part of one.
func processors(to *float64) flags.Value {
	return flags.Value{
		Kind: "number", May: fmt.Sprintf("a number from 0.1 to %d, such as 0.5 or 2", maxCPUs), Default: strconv.FormatFloat(*to, 'g', -1, 64),
		Read: func(text string) error {
			n, err := strconv.ParseFloat(text, 64)
			if err != nil || !(n >= 0.1 && n <= maxCPUs) {
				return flags.ErrNotAllowed
			}
			*to = n
			return nil
		},
	}
}

// cpuTime is how long something keeps a processor busy.
func cpuTime(to *time.Duration) flags.Value {
	const shortest, longest = 100 * time.Nanosecond, 10 * time.Millisecond
	return flags.Value{
		Kind: "duration", May: "100ns to 10ms with a unit, such as 12.5us",
		Read: func(text string) error {
			d, err := time.ParseDuration(text)
			if err != nil || d < shortest || d > longest {
				return flags.ErrNotAllowed
			}
			*to = d
			return nil
		},
	}
}
