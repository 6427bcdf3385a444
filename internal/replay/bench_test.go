package replay_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/replay"
)

const usualLimits = `domain: d
descriptors:
  - key: tenant
    rate_limit: {name: second, requests: 50, period: 1s}
    descriptors:
      - {key: path, rate_limits: [{name: second, requests: 20, period: 1s}, {name: minute, requests: 600, period: 1m}]}
`

// usualLog has n requests of 1000 tenants, by Zipf's law.
func usualLog(b *testing.B, n int) []byte {
	r := newRecorder(b, usualLimits)
	random := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(random, 1.1, 1, 999)
	for range n {
		r.after(100)
		if random.IntN(4) == 0 {
			r.take(asking(fmt.Sprintf("tenant=t%d,path=/p%d", zipf.Uint64(), random.IntN(5)), 1))
		} else {
			r.take(asking(fmt.Sprintf("tenant=t%d", zipf.Uint64()), 1))
		}
	}
	return r.log
}

// cpu is the processor time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkReplay reports lines by the processor's time, so that what else runs on
// the machine counts little.
func BenchmarkReplay(b *testing.B) {
	const lines = 500_000
	text := usualLog(b, lines)
	rules := rulesOf(b, usualLimits)
	for name, o := range map[string]replay.Options{"recorded": {}, "limits": {Limits: rules}, "against": {Limits: rules, Against: rules}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			used := time.Duration(0)
			for b.Loop() {
				r, err := replay.New(o)
				if err != nil {
					b.Fatal(err)
				}
				l, err := replay.NewLog("bench.log", io.NopCloser(bytes.NewReader(text)), replay.Decisions(), replay.DefaultWindow)
				if err != nil {
					b.Fatal(err)
				}
				start := cpu()
				if err := r.Run(l); err != nil {
					b.Fatal(err)
				}
				used += cpu() - start
			}
			b.ReportMetric(lines*float64(b.N)/used.Seconds(), "lines/cpu-s")
		})
	}
}
