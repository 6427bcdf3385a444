package sizing_test

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/exit"
)

// docs/sizing.md shows what the commands print.
func TestSizingAsDocumented(t *testing.T) {
	t.Setenv("COLUMNS", "")
	for _, block := range clitest.Blocks(t, "../../../docs/sizing.md", "console") {
		for _, shown := range strings.Split(block, "$ ")[1:] {
			line, want, _ := strings.Cut(shown, "\n")
			if out, stderr, code := clitest.Run(t, "", clitest.Words(line)...); code != 0 || stderr != "" || out != want {
				t.Errorf("%s exits with %d: %s\n%s\nthe page has\n%s", line, code, stderr, out, want)
			}
		}
	}
}

func TestSizingShowsTheArithmetic(t *testing.T) {
	for args, wants := range map[string][]string{
		"--decisions 2000 --keys 10000 --store memory":             {"Daemon      1 with 1 CPU\n", "2,000 x 21.5 us = 0.04 CPUs", "memory.max_keys: 1000000, the default"},
		"--decisions 2000 --keys 10000 --store memory --stream":    {"2,000 x 3.0 us = 0.01 CPUs"},
		"--decisions 5000 --keys 9000000":                          {"1 server, with a replica behind Sentinel", "5,000 x 13.0 us = 0.07 CPUs of its one", "memory.max_keys: 9000000"},
		"--decisions 5000 --keys 9 --cluster --limits 3":           {"3 masters", "checked, then charged: x 2", "cluster: 30,000 x 25.4 us"},
		"--decisions 5000 --keys 9 --cluster --limits 3 --one-tag": {"cluster: 15,000 x 25.4 us"},
		"--decisions 5000 --keys 9 --redis-time 4us --daemon-time 12.5us --cpus 0.5 --spare 2 --busy 50": {
			"more than 50% of the time", "5,000 x 4.0 us = 0.02 CPUs", "5,000 x 12.5 us = 0.06 CPUs; / 50% = 0.12", "3 with 0.5 CPUs each"},
	} {
		out, stderr, code := clitest.Run(t, "", append([]string{"ratelimitd", "sizing"}, strings.Fields(args)...)...)
		if code != 0 || stderr != "" {
			t.Errorf("%s exits with %d: %s", args, code, stderr)
		}
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("%s prints\n%s\nwithout %q", args, out, want)
			}
		}
		for line := range strings.Lines(out) {
			if len(line) > 81 {
				t.Errorf("%s has a line of %d columns: %s", args, len(line)-1, line)
			}
		}
	}
}

func TestSizingRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"":                                                "found no --decisions; ratelimitd sizing needs it",
		"--decisions 5":                                   "found no --keys; ratelimitd sizing needs it",
		"--decisions 0 --keys 1":                          `flag --decisions: found "0"; allowed: a whole number from 1 to 1000000000`,
		"--decisions 5k --keys 1":                         `flag --decisions: found "5k"; allowed: a whole number`,
		"--decisions 1 --keys -1":                         `flag --keys: found "-1"; allowed: a whole number from 1 to 1000000000000`,
		"--decisions 1 --keys 1 --limits 0":               `flag --limits: found "0"; allowed: a whole number from 1 to 100`,
		"--decisions 1 --keys 1 --cpus 0":                 `flag --cpus: found "0"; allowed: a number from 0.1 to 256`,
		"--decisions 1 --keys 1 --cpus NaN":               `flag --cpus: found "NaN"; allowed: a number`,
		"--decisions 1 --keys 1 --busy 101":               `flag --busy: found "101"; allowed: a whole number from 1 to 100`,
		"--decisions 1 --keys 1 --store disk":             `flag --store: found "disk"; allowed: redis, memory`,
		"--decisions 1 --keys 1 --redis-time 13":          `flag --redis-time: found "13"; allowed: 100ns to 10ms with a unit`,
		"--decisions 1 --keys 1 --daemon-time 1s":         `flag --daemon-time: found "1s"; allowed: 100ns to 10ms`,
		"--decisions 1 --keys 1 --store memory --cluster": "found --cluster beside --store memory",
		"--decisions 1 --keys 1 --store memory --spare 2": "found --spare beside --store memory",
		"--decisions 1 --keys 1 more":                     `found the argument "more"`,
		"--decisions 1000000000 --keys 1":                 "found 1,000,000,000 requests a second with 1 limit each; allowed: what a cluster of 1000 masters decides",
		"--decisions 1 --keys 1 --limit 2":                "did you mean --limits?",
	} {
		out, stderr, code := clitest.Run(t, "", append([]string{"ratelimitd", "sizing"}, strings.Fields(args)...)...)
		if code != exit.Error || out != "" || !strings.Contains(stderr, want) {
			t.Errorf("sizing %s exits with %d: %q %s\nwant %s", args, code, out, stderr, want)
		}
	}
}
