package sizing

import "time"

// What make bench measured, as in the table "Results" of docs/performance.md: the rows
// are named. All are of two busy cores that daemon, Redis and callers share, so a machine
// of its own is faster.
const (
	// CPU of the daemon for a request with one limit, column "CPU us".
	memoryRequest = 21500 * time.Nanosecond // memory-256
	redisRequest  = 30100 * time.Nanosecond // redis-256
	// More on a cluster, whose batches are smaller: cluster-256 less redis-256.
	clusterMore = 4200 * time.Nanosecond
	// The same where requests arrive on streams, as those of the Go client do.
	memoryStreamRequest = 3000 * time.Nanosecond // take-stream
	redisStreamRequest  = 6800 * time.Nanosecond // take-stream-redis
	// Each further limit: half of redis-3-descriptors less redis-256.
	furtherLimit = 3650 * time.Nanosecond

	// CPU of Redis for a limit that is charged, column "Redis CPU us"; on a cluster the sum
	// over its masters.
	redisCharge   = 13020 * time.Nanosecond // redis-256
	clusterCharge = 25400 * time.Nanosecond // cluster-256
)

// Memory.
const (
	// redisKeyBytes is what a state takes in Redis, with its key and its places in Redis's
	// tables: go test -run '^$' -bench BytesOfAKey ./internal/redisstore. That has 200 for
	// windows by the clock, 216 for buckets and 247 for sliding windows.
	redisKeyBytes = 250
	// daemonKeyBytes is what memory.max_bytes has for each of memory.max_keys. A benchmark
	// (-bench Take ./internal/bucket/memstore) has 184 to 216 for short keys.
	daemonKeyBytes = 256
	// daemonBytes is the memory of a container that held out against forty attackers: go
	// test -run TestAttack ./integration.
	daemonBytes = 512 << 20
	// statesShare is which part of its container a daemon's states may take by default.
	statesShare = 2.0 / 5
)

// What is decided here, not measured.
const (
	// redisSpare is what maxmemory has for each byte that is expected: keys are longer, and
	// more of them are live, than one thinks.
	redisSpare = 1.5
	// minMasters is how many masters a Redis Cluster has at least.
	minMasters = 3
	// maxMasters is how many nodes a Redis Cluster is made for.
	maxMasters = 1000
	// defaultTags and maxTags are those of the setting redis.hash_tags.
	defaultTags, maxTags = 32, 16384
	// uneven is how much more than its even part the busiest master may have.
	uneven = 1.15
)
