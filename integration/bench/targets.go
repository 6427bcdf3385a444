package main

import (
	"fmt"
	"math"
	"strings"
)

// target is what a number is meant to be.
type target struct {
	what, unit string
	found      float64
	limit      float64
	orEqual    bool
}

func (t target) met() bool { return t.found < t.limit || t.orEqual && t.found == t.limit }

// judge returns the targets, those whose rows were not measured with NaN. It
// returns none when no row has a target.
func judge(results []result) []target {
	of := func(name string) result {
		for _, r := range results {
			if r.row.name == name {
				return r
			}
		}
		return result{}
	}
	mem, many := of(rowMemory), of(rowMillion)
	batched, alone := of(rowRedis), of(rowRedisUnbatched)
	one, oneSingle := of(rowOne), of(rowOneUnbatched)
	half := of(rowHalfPeak)
	perKey := math.NaN()
	if many.filled.keys > 0 {
		perKey = many.filled.perKey(many.filled.heap)
	}
	targets := []target{
		{"memory store: daemon CPU, of bare tuned", "x", ratios(mem.daemon, mem.tuned).cpu, 1.15, true},
		{"one Redis, even keys: daemon CPU, of bare tuned", "x", ratios(batched.daemon, batched.tuned).cpu, 1.4, true},
		{"one Redis, even keys: Redis CPU a decision", "us", medians(batched.daemon).redis, 5, true},
		{"one Redis, even keys: Redis CPU, of unbatched", "x", ratios(batched.daemon, alone.daemon).redis, 0.5, false},
		{"hot key under its limit: scripts per 1,000 requests", "", medians(of(rowHotUnder).daemon).scripts, 40, false},
		{"hot key over its limit: scripts per 1,000 requests", "", medians(of(rowHotOver).daemon).scripts, 2, false},
		{"one caller on Redis: p50, of unbatched", "x", ratios(one.daemon, oneSingle.daemon).p50, slower, true},
		{"half the peak: p99, of bare", "x", ratios(half.daemon, half.bare).p99, 5, false},
		{"TakeStream, memory: daemon CPU a decision, of a call to bare tuned", "x", ratios(of(rowStream).daemon, of(rowStream).tuned).cpu, 0.4, true},
		{"a million keys: daemon CPU, of 10,000 keys", "x", ratios(many.daemon, mem.daemon).cpu, 1.25, true},
		{"a million keys: bytes of live heap a key", "", perKey, 250, false},
	}
	for _, t := range targets {
		if !math.IsNaN(t.found) {
			return targets
		}
	}
	return nil
}

// slower is from where on a latency counts as slower: two equal builds differ
// by a few percent from run to run.
const slower = 1.05

func targetsTable(targets []target) *table {
	t := &table{texts: 4, columns: []column{{"", "target"}, {"", "allowed"}, {"", "found"}, {"", "verdict"}}}
	for _, one := range targets {
		sign, verdict := "<", "not met"
		if one.orEqual {
			sign = "<="
		}
		switch {
		case math.IsNaN(one.found):
			verdict = "not measured"
		case one.met():
			verdict = "met"
		}
		t.add(one.what, strings.TrimSpace(fmt.Sprintf("%s %g %s", sign, one.limit, one.unit)), number(one.found, 2), verdict)
	}
	return t
}
