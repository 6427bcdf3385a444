package bucket_test

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
)

func TestLeasesNeverExceedTheLimit(t *testing.T) {
	runs := soaktest.Long[uint64](10_000, 1_000_000)
	var leased int64
	for seed := range runs {
		r, err := buckettest.RandomLeases(buckettest.Chance(seed, 0), true)
		if err != nil {
			t.Fatalf("run %d: %v", seed, err)
		}
		leased += r.Leased
	}
	if leased < int64(runs) {
		t.Errorf("leases were used for %d in %d runs: the test looks at too little", leased, runs)
	}
}

func TestWithoutLeewayLeasesWouldExceedTheLimit(t *testing.T) {
	exceeded := 0
	for seed := range uint64(1000) {
		if _, err := buckettest.RandomLeases(buckettest.Chance(seed, 0), false); err != nil {
			exceeded++
		}
	}
	if exceeded < 20 {
		t.Errorf("%d of 1,000 runs exceeded their limits", exceeded)
	}
}

func FuzzLeases(f *testing.F) {
	f.Add([]byte("some leases"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := buckettest.RandomLeases(buckettest.Bytes(b), true); err != nil {
			t.Error(err)
		}
	})
}
