package sizing

import (
	"fmt"
	"math"
	"time"
)

// load is what the daemons are asked for, and how busy they may be.
type load struct {
	decisions int64 // requests a second, at the peak
	keys      int64 // states that are live at once
	limits    int64 // that a request is charged by
	oneTag    bool  // its limits have one hash tag
	memory    bool  // the store is memory
	cluster   bool  // even where one server suffices
	stream    bool
	cpus      float64       // of a daemon
	busy      int64         // percent of a processor
	spare     int64         // daemons that may be away at the peak
	daemon    time.Duration // CPU of a request with one limit on one Redis, or in memory
	redis     time.Duration // CPU of a charge on one Redis
}

// plan is what a load needs.
type plan struct {
	load
	daemonTime time.Duration // CPU of the daemon for a request
	daemonCPUs float64       // of all daemons
	needed     int64         // daemons, without those to spare

	charges      int64   // of one request, by Redis
	oneServer    float64 // CPUs of Redis, were it one server
	isCluster    bool
	chargeTime   time.Duration // CPU of Redis for a charge
	redisCPUs    float64       // of all masters
	masters      int64
	tags         int64
	busiestTags  int64 // of the busiest master
	busiestCPUs  float64
	busiestBytes float64 // of states, without what is spare
}

// share is how busy a processor may be, up to 1.
func (l load) share() float64 { return float64(l.busy) / 100 }

// planFor does the arithmetic.
func planFor(l load) (plan, error) {
	p := plan{load: l}
	if !l.memory {
		if err := p.planRedis(); err != nil {
			return plan{}, err
		}
	}
	p.daemonTime = l.daemon + time.Duration(l.limits-1)*furtherLimit
	if p.isCluster {
		p.daemonTime += clusterMore
	}
	p.daemonCPUs = cpus(l.decisions, p.daemonTime)
	if l.memory {
		p.cpus, p.needed = float64(whole(p.daemonCPUs/l.share())), 1
		return p, nil
	}
	p.needed = whole(p.daemonCPUs / l.share() / l.cpus)
	return p, nil
}

// cpus is how many processors so many times a second keep busy.
func cpus(times int64, each time.Duration) float64 { return float64(times) * each.Seconds() }

// whole rounds up, except what arithmetic on floats has added.
func whole(n float64) int64 { return int64(math.Ceil(n - 1e-9)) }

func (p *plan) planRedis() error {
	p.charges = p.limits
	p.oneServer = cpus(p.decisions, time.Duration(p.limits)*p.redis)
	if p.oneServer <= p.share() && !p.cluster {
		p.chargeTime, p.redisCPUs = p.redis, p.oneServer
		p.masters, p.tags, p.busiestTags = 1, defaultTags, defaultTags
		p.busiestCPUs, p.busiestBytes = p.oneServer, float64(p.keys)*redisKeyBytes
		return nil
	}
	p.isCluster = true
	if p.limits > 1 && !p.oneTag {
		p.charges *= 2 // all tags are asked before any is charged
	}
	p.chargeTime = time.Duration(float64(p.redis) * float64(clusterCharge) / float64(redisCharge))
	p.redisCPUs = cpus(p.decisions, time.Duration(p.charges)*p.chargeTime)
	for p.masters = minMasters; p.masters <= maxMasters; p.masters++ {
		p.spread()
		if p.busiestCPUs <= p.share() {
			return nil
		}
	}
	return fmt.Errorf("found %s; allowed: what a cluster of %d masters decides, which is less. Give parts of the domains a Redis of their own", p.asked(), maxMasters)
}

// spread takes the fewest hash tags, from the default on, that spread the load evenly over
// the masters. Their slots are evenly spaced, and so are those of the masters.
func (p *plan) spread() {
	for p.tags = defaultTags; ; p.tags *= 2 {
		p.busiestTags = (p.tags + p.masters - 1) / p.masters
		if p.tags >= maxTags || float64(p.busiestTags*p.masters) <= uneven*float64(p.tags) {
			break
		}
	}
	part := float64(p.busiestTags) / float64(p.tags)
	p.busiestCPUs = p.redisCPUs * part
	p.busiestBytes = float64(p.keys) * redisKeyBytes * part
}

// maxMemory is the setting maxmemory of each master, in bytes.
func (p *plan) maxMemory() float64 { return redisSpare * p.busiestBytes }

// daemonMemory is the memory of a container in which a daemon has a state for each key.
func (p *plan) daemonMemory() float64 {
	return max(daemonBytes, float64(p.keys)*daemonKeyBytes/statesShare)
}

// ofOneTag is how many requests a second one hash tag can have, if nothing else is asked
// of its master.
func (p *plan) ofOneTag() int64 {
	return int64(p.share() / (time.Duration(p.limits) * p.chargeTime).Seconds())
}
