package leases

import (
	"fmt"
	"math"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
)

// Fleet is clients, of which ten each ask for one of many equal keys.
type Fleet struct {
	Offered int // a second, by all clients
	Clients int
	Lease   time.Duration
}

// Fleets are the rows of the table of docs/leases.md.
func Fleets() (all []Fleet) {
	for offered := 10_000; offered <= 10_000_000; offered *= 10 {
		for _, lease := range []time.Duration{0, 100 * time.Millisecond, time.Second} {
			all = append(all, Fleet{Offered: offered, Clients: offered / 100, Lease: lease})
		}
	}
	return append(all, Fleet{Offered: 10_000_000, Clients: 10_000, Lease: 100 * time.Millisecond})
}

// What docs/sizing.md says of a busy machine, in us of CPU.
const (
	daemonTake  = 6.8  // over a stream
	daemonCall  = 30.1 // of its own
	daemonAgain = 3.7  // a further limit

	redisAlone   = 13.0
	redisCluster = 25.4
	// onCluster is how much more a daemon needs there.
	onCluster  = 34.3 / 30.1
	minMasters = 3

	busy = 0.6
)

// Row simulates a fleet whose keys are asked for four fifths of what they allow, and
// returns its row of the table.
func (f Fleet) Row() (string, error) {
	const clients = 10
	keys := f.Clients / clients
	perKey := float64(f.Offered) / float64(keys)
	load := Load{
		Limit:   bucket.Spec{Algorithm: bucket.TokenBucket, Requests: int64(perKey * 10 / 0.8), Period: 10 * time.Second, Lease: f.Lease},
		Clients: clients, Offered: perKey, Warm: max(time.Second, 3*f.Lease), Length: max(time.Second, 2*f.Lease),
	}
	var all Outcome
	for n := range keys {
		out, err := Run(load, uint64(n))
		if err != nil {
			return "", err
		}
		all.Offered += out.Offered
		all.Admitted += out.Admitted
		all.Takes += out.Takes
		all.GiveBacks += out.GiveBacks
		all.Again += out.Again
	}
	if isDenied := 1 - float64(all.Admitted)/float64(all.Offered); isDenied > 0.01 {
		return "", fmt.Errorf("%.3f of what is offered is denied", isDenied)
	}
	second := 1 / load.Length.Seconds()
	calls := float64(all.Calls()) * second
	daemons := (float64(all.Takes)*daemonTake + float64(all.GiveBacks)*daemonCall + float64(all.Again)*daemonAgain) * second / 1e6
	limits := (float64(all.Calls()) + float64(all.Again)) * second / 1e6

	lease, redis := "none", "1 server"
	if f.Lease != 0 {
		lease = f.Lease.String()
	}
	if limits*redisAlone > busy {
		daemons *= onCluster
		redis = fmt.Sprintf("%d masters", max(minMasters, processors(limits*redisCluster)))
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %.1f | %d | %s |", words.Thousands(int64(f.Offered)), words.Thousands(int64(f.Clients)), lease,
		words.Thousands(rounded(calls)), float64(f.Offered)/calls, 1+processors(daemons), redis), nil
}

// processors returns how many carry so many seconds of work a second.
func processors(work float64) int { return int(math.Ceil(work / busy)) }

// rounded returns a number to three digits.
func rounded(x float64) int64 {
	unit := math.Pow(10, math.Max(0, math.Floor(math.Log10(x))-2))
	return int64(math.Round(x/unit) * unit)
}
