package sizing

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The constants are those of the documented results.
func TestTimesAreThoseOfTheBenchmark(t *testing.T) {
	page, err := os.ReadFile("../../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	// in returns a time of a row of the table that has a column of that name.
	in := func(row, column string) time.Duration {
		t.Helper()
		var names []string
		for line := range strings.Lines(string(page)) {
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | ")
			if cells[0] == "row" {
				names = cells
			}
			if cells[0] != row {
				continue
			}
			for i, name := range names {
				if name != column {
					continue
				}
				micros, err := strconv.ParseFloat(cells[i], 64)
				if err != nil {
					t.Fatal(err)
				}
				return time.Duration(math.Round(micros * 1000))
			}
		}
		t.Fatalf("docs/performance.md has no row %s with a column %s", row, column)
		return 0
	}
	const daemon, redis = "CPU us", "Redis CPU us"
	for what, c := range map[string][2]time.Duration{
		"memoryRequest":       {memoryRequest, in("memory-256", daemon)},
		"redisRequest":        {redisRequest, in("redis-256", daemon)},
		"clusterMore":         {clusterMore, in("cluster-256", daemon) - in("redis-256", daemon)},
		"memoryStreamRequest": {memoryStreamRequest, in("take-stream", daemon)},
		"redisStreamRequest":  {redisStreamRequest, in("take-stream-redis", daemon)},
		"furtherLimit":        {furtherLimit, (in("redis-3-descriptors", daemon) - in("redis-256", daemon)) / 2},
		"redisCharge":         {redisCharge, in("redis-256", redis)},
		"clusterCharge":       {clusterCharge, in("cluster-256", redis)},
	} {
		if c[0] != c[1] {
			t.Errorf("%s is %v, was measured as %v", what, c[0], c[1])
		}
	}
}

// usual is what the command has where only the decisions and the keys are given.
func usual(decisions, keys int64) load {
	return load{decisions: decisions, keys: keys, limits: 1, cpus: 1, busy: 60, spare: 1}.withMeasured()
}

func TestPlans(t *testing.T) {
	// Round numbers, so that each row can be checked in one's head.
	by := func(change func(*load)) load {
		l := load{decisions: 10_000, keys: 1 << 20, limits: 1, cpus: 1, busy: 50, spare: 1, daemon: 100 * time.Microsecond, redis: 40 * time.Microsecond}
		change(&l)
		return l
	}
	for _, c := range []struct {
		name                                string
		load                                load
		daemons, masters, tags, busiestTags int64
		redisCPUs, maxMemory                float64
	}{
		{"one server", by(func(*load) {}), 3, 1, 32, 32, 0.4, 1.5 * 250 * (1 << 20)},
		{"half a CPU each", by(func(l *load) { l.cpus = 0.5 }), 5, 1, 32, 32, 0.4, 1.5 * 250 * (1 << 20)},
		{"more busy", by(func(l *load) { l.busy = 100; l.spare = 0 }), 1, 1, 32, 32, 0.4, 1.5 * 250 * (1 << 20)},
		{"two limits", by(func(l *load) { l.limits, l.busy = 2, 80 }), 3, 1, 32, 32, 0.8, 1.5 * 250 * (1 << 20)},
		{"a cluster in any case", by(func(l *load) { l.cluster = true }), 4, 3, 32, 11, 0.4 * 25.4 / 13.02, 1.5 * 250 * (1 << 20) * 11 / 32},
		{"two limits of one tag", by(func(l *load) { l.limits, l.oneTag, l.cluster = 2, true, true }), 4, 4, 32, 8, 0.8 * 25.4 / 13.02, 1.5 * 250 * (1 << 20) / 4},
		{"two limits of several tags", by(func(l *load) { l.limits, l.cluster = 2, true }), 4, 7, 32, 5, 1.6 * 25.4 / 13.02, 1.5 * 250 * (1 << 20) * 5 / 32},
		{"a large cluster", by(func(l *load) { l.decisions = 400_000 }), 85, 64, 64, 1, 16 * 25.4 / 13.02, 1.5 * 250 * (1 << 20) / 64},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := planFor(c.load)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.needed + p.spare; got != c.daemons {
				t.Errorf("%d daemons, want %d", got, c.daemons)
			}
			if p.masters != c.masters || p.tags != c.tags || p.busiestTags != c.busiestTags {
				t.Errorf("%d masters, the busiest with %d of %d tags; want %d, %d of %d", p.masters, p.busiestTags, p.tags, c.masters, c.busiestTags, c.tags)
			}
			if math.Abs(p.redisCPUs/c.redisCPUs-1) > 1e-4 || math.Abs(p.maxMemory()/c.maxMemory-1) > 1e-9 {
				t.Errorf("%v CPUs of Redis and %v bytes, want %v and %v", p.redisCPUs, p.maxMemory(), c.redisCPUs, c.maxMemory)
			}
		})
	}
}

func TestPlanOfADaemonAlone(t *testing.T) {
	l := usual(100_000, 10_000_000)
	l.memory, l.daemon = true, 0
	p, err := planFor(l.withMeasured())
	if err != nil {
		t.Fatal(err)
	}
	if p.needed != 1 || p.cpus != 4 || p.daemonMemory() != 10_000_000*256/0.4 { // 100,000 x 21.5 us / 60% = 3.58
		t.Errorf("%d daemons with %v CPUs and %v bytes", p.needed, p.cpus, p.daemonMemory())
	}
}

// Whatever is asked for, nothing is busier than it may be, and one less would be.
func TestPlansSuffice(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		l := load{
			decisions: int64(math.Exp(random.Float64() * math.Log(3e7))), keys: 1 + random.Int64N(1e9), limits: 1 + random.Int64N(3),
			oneTag: random.IntN(2) == 0, cluster: random.IntN(3) == 0, stream: random.IntN(2) == 0,
			cpus: 0.1 + 8*random.Float64(), busy: 1 + random.Int64N(100), spare: random.Int64N(3),
		}.withMeasured()
		p, err := planFor(l)
		if err != nil {
			if cpus(l.decisions, time.Duration(l.limits)*l.redis) < l.share()*maxMasters/8 {
				t.Fatalf("%+v: %v", l, err)
			}
			continue
		}
		per := func(daemons int64) float64 { return p.daemonCPUs / float64(daemons) / l.cpus }
		if per(p.needed) > l.share()+1e-9 || p.needed > 1 && per(p.needed-1) < l.share()-1e-9 {
			t.Fatalf("%+v: %d daemons are busy for %v", l, p.needed, per(p.needed))
		}
		if p.busiestCPUs > l.share() {
			t.Fatalf("%+v: the busiest of %d masters is busy for %v", l, p.masters, p.busiestCPUs)
		}
		if p.isCluster && (p.masters < minMasters || p.tags < min(p.masters, maxTags) || p.tags > maxTags) {
			t.Fatalf("%+v: %d masters and %d tags", l, p.masters, p.tags)
		}
		if !p.isCluster && (l.cluster || p.oneServer > l.share()) {
			t.Fatalf("%+v: one server with %v CPUs", l, p.oneServer)
		}
	}
}

// The table of docs/sizing.md has what the command computes.
func TestTableOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/sizing.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| ([\d,]+) \| ([\d,]+) \| (\d+) \| (.+) \| (\d+) \| (.+) \|$`).FindAllStringSubmatch(string(page), -1)
	if len(rows) < 4 {
		t.Fatalf("it has %d rows", len(rows))
	}
	number := func(text string) int64 {
		n, err := strconv.ParseInt(strings.ReplaceAll(text, ",", ""), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, row := range rows {
		p, err := planFor(usual(number(row[1]), number(row[2])))
		if err != nil {
			t.Fatal(err)
		}
		servers := fmt.Sprintf("%d masters", p.masters)
		if !p.isCluster {
			servers = "1 server"
		}
		got := fmt.Sprintf("| %s | %s | %d | %s | %d | %s |", row[1], row[2], p.needed+p.spare, servers, p.tags, mib(p.maxMemory()))
		if got != row[0] {
			t.Errorf("the page has\n%s\nit is\n%s", row[0], got)
		}
	}
}
