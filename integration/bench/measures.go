package main

import (
	"math"
	"slices"
	"time"
)

// measures are the numbers of a slice, or the medians of several; what is not
// known is NaN.
type measures struct {
	rate            float64 // answers a second
	p50, p99, p999  float64 // us
	cpu, redis, own float64 // us a request: of the server, its Redis, the generator
	// scripts and commands are per 1,000 requests.
	scripts, commands float64
}

func (s *subject) measure(before, after reading, store, storeAfter storeReading) measures {
	n := float64(after.answers - before.answers)
	m := measures{
		rate: n / after.at.Sub(before.at).Seconds(),
		own:  micros(after.own-before.own) / n,
		cpu:  math.NaN(), redis: math.NaN(), scripts: math.NaN(), commands: math.NaN(),
	}
	if s.pid != 0 {
		m.cpu = micros(after.cpu-before.cpu) / n
	}
	if s.redis != nil {
		n := float64(storeAfter.answers - store.answers)
		m.redis = micros(storeAfter.cpu-store.cpu) / n
		m.scripts = float64(storeAfter.scripts-store.scripts) / n * 1000
		m.commands = float64(storeAfter.commands-store.commands) / n * 1000
	}
	var all histogram
	for _, c := range s.callers {
		all.add(&c.latency)
	}
	m.p50, m.p99, m.p999 = all.quantile(0.5), all.quantile(0.99), all.quantile(0.999)
	return m
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// each calls do with every number of a slice.
func (m *measures) each(do func(number *float64)) {
	for _, number := range []*float64{&m.rate, &m.p50, &m.p99, &m.p999, &m.cpu, &m.redis, &m.own, &m.scripts, &m.commands} {
		do(number)
	}
}

// medians returns the median of each number over all slices, each for itself;
// without slices nothing is known.
func medians(all []measures) (m measures) {
	values := make([][]float64, 0, 9)
	m.each(func(*float64) { values = append(values, nil) })
	for _, one := range all {
		i := 0
		one.each(func(number *float64) { values[i] = append(values[i], *number); i++ })
	}
	i := 0
	m.each(func(number *float64) { *number = median(values[i]); i++ })
	return m
}

// ratios returns the medians of what two servers' slices are to each other,
// round by round: what slows the machine for a while slows both.
func ratios(of, to []measures) measures {
	all := make([]measures, min(len(of), len(to)))
	for i := range all {
		all[i] = of[i]
		var divisors []float64
		to[i].each(func(number *float64) { divisors = append(divisors, *number) })
		n := 0
		all[i].each(func(number *float64) { *number /= divisors[n]; n++ })
	}
	return medians(all)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values) // NaN before all numbers
	if n := len(values); n%2 == 0 {
		return (values[n/2-1] + values[n/2]) / 2
	}
	return values[len(values)/2]
}
