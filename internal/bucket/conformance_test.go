package bucket_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
)

// TestConformance runs the stores' suite on the bare steps.
func TestConformance(t *testing.T) {
	buckettest.Run(t, buckettest.Harness{
		Open: func(_ *testing.T, clock func() int64) bucket.Store {
			if clock == nil {
				clock = func() int64 { return time.Now().UnixMicro() }
			}
			return newSteps(clock)
		},
		Traces: 500,
	})
}
