package main

import (
	"fmt"
	"regexp"
)

// server is a daemon that rows run on, with the store it keeps its state in.
type server struct {
	name string
	// redis is how many masters it has: 0 for the memory store.
	redis int
	flags []string
	// fill is how many keys are put into it before anything is measured.
	fill int
}

const million = 1_000_000

var (
	memory        = &server{name: "memory"}
	memoryMillion = &server{name: "memory, a million keys", flags: []string{"--memory-max-keys", "2000000"}, fill: million}
	single        = &server{name: "one Redis", redis: 1}
	unbatched     = &server{name: "one Redis, unbatched", redis: 1, flags: []string{"--redis-batch-size", "1"}}
	cluster       = &server{name: "three masters", redis: clusterMasters}
)

// row is one case of the table.
type row struct {
	name string
	// says is what the row is there to tell.
	says   string
	server *server
	load   load
	// halfPeak is whether requests arrive at half the rate that as many
	// callers reach, whether answered or not.
	halfPeak bool
}

// group is rows that are compared with each other, and so take turns; the bare
// servers among them get the first row's load.
type group []row

// Names of rows that targets are about.
const (
	rowMemory         = "memory-256"
	rowMillion        = "memory-million-keys"
	rowRedis          = "redis-256"
	rowRedisUnbatched = "redis-256-unbatched"
	rowOne            = "redis-1"
	rowOneUnbatched   = "redis-1-unbatched"
	rowHotUnder       = "redis-hot-under"
	rowHotOver        = "redis-hot-over"
	rowHalfPeak       = "redis-half-peak"
	rowStream         = "take-stream"
)

const population = 10_000

func evenLoad(callers int) load {
	return load{keys: even, key: "user", population: population, descriptors: 1, callers: callers}
}

func zipfLoad(callers int) load {
	l := evenLoad(callers)
	l.keys = zipf
	return l
}

func hotLoad(callers int) load {
	return load{keys: hotUnder, key: "hot", population: 1, hot: 1, descriptors: 1, callers: callers}
}

func overLoad(callers int) load {
	return load{keys: hotOver, key: "over", population: 1, hot: 1, descriptors: 1, callers: callers}
}

func (l load) withDescriptors(n int) load {
	l.descriptors = n
	return l
}

// throughDoor has so many callers ask so many requests at a time.
func (l load) throughDoor(d door, callers, together int) load {
	l.door, l.callers, l.together = d, callers, together
	return l
}

func millionLoad(callers int) load {
	return load{keys: even, key: "account", population: million, descriptors: 1, callers: callers}
}

// usualRows are those of the default run.
func usualRows() []group {
	return []group{
		{
			{name: rowMemory, server: memory, load: evenLoad(256), says: "a busy daemon without Redis: 256 callers, 10,000 keys"},
			{name: rowMillion, server: memoryMillion, load: millionLoad(256), says: "the same with a million keys in memory"},
		},
		{{name: "memory-1", server: memory, load: evenLoad(1), says: "the least that a decision takes: one caller, no Redis"}},
		{
			{name: rowRedis, server: single, load: evenLoad(256), says: "a busy daemon on one Redis: 256 callers, 10,000 keys"},
			{name: rowRedisUnbatched, server: unbatched, load: evenLoad(256), says: "the same where each request is a call of its own"},
		},
		{{name: "redis-16", server: single, load: evenLoad(16), says: "a daemon with little to do: 16 callers"}},
		{
			{name: rowOne, server: single, load: evenLoad(1), says: "what Redis adds to a single request: one caller"},
			{name: rowOneUnbatched, server: unbatched, load: evenLoad(1), says: "the same where each request is a call of its own"},
		},
		{{name: "redis-zipf", server: single, load: zipfLoad(256), says: "some keys far busier than others: Zipf 1.1 over 10,000"}},
		{{name: rowHotUnder, server: single, load: hotLoad(256), says: "everybody asks for one key, which is under its limit"}},
		{{name: rowHotOver, server: single, load: overLoad(256), says: "everybody asks for one key, which is over its 100 an hour"}},
		{{name: "redis-3-descriptors", server: single, load: evenLoad(256).withDescriptors(3), says: "three limits in each request"}},
		{{name: "cluster-256", server: cluster, load: evenLoad(256), says: "a busy daemon on a Redis Cluster of three masters"}},
		{{name: rowStream, server: memory, load: evenLoad(0).throughDoor(streamDoor, 4, 64), says: "the daemon's own API: 256 in flight on 4 streams"}},
		{{name: "take-stream-redis", server: single, load: evenLoad(0).throughDoor(streamDoor, 4, 64), says: "the same on one Redis"}},
		{{name: "take-many-10", server: memory, load: evenLoad(0).throughDoor(manyDoor, 25, 10), says: "calls of 10 requests each, 25 at a time"}},
		{{name: "take-many-100", server: memory, load: evenLoad(0).throughDoor(manyDoor, 4, 100), says: "calls of 100 requests each, 4 at a time"}},
		{{name: rowHalfPeak, server: single, load: evenLoad(256), halfPeak: true, says: "latency at half the peak: Poisson arrivals, answered or not"}},
	}
}

// allRows are the usual ones, and every store with all kinds of keys,
// descriptors and callers.
func allRows() []group {
	groups := usualRows()
	for _, s := range []struct {
		name   string
		server *server
	}{{"memory", memory}, {"redis", single}, {"cluster", cluster}} {
		for _, k := range []struct {
			keys keys
			load func(int) load
		}{{even, evenLoad}, {zipf, zipfLoad}, {hotUnder, hotLoad}, {hotOver, overLoad}} {
			for _, descriptors := range []int{1, 3} {
				for _, callers := range []int{1, 16, 256} {
					groups = append(groups, group{{
						name:   fmt.Sprintf("%s-%s-%dd-%d", s.name, k.keys, descriptors, callers),
						says:   fmt.Sprintf("%s, keys %s, descriptors %d, callers %d", s.server.name, k.keys, descriptors, callers),
						server: s.server,
						load:   k.load(callers).withDescriptors(descriptors),
					}})
				}
			}
		}
	}
	return groups
}

// selectRows returns the rows whose names match, each with a key of its own
// where all ask for one.
func selectRows(groups []group, name *regexp.Regexp) []group {
	var selected []group
	n := 0
	for _, g := range groups {
		var rows group
		for _, r := range g {
			n++
			if name.MatchString(r.name) {
				r.load.hot = n
				rows = append(rows, r)
			}
		}
		if len(rows) > 0 {
			selected = append(selected, rows)
		}
	}
	return selected
}
