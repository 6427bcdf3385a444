package tracing

import (
	"testing"
	"time"
)

func TestPaceIsBoundedWhateverTheEnvironmentSays(t *testing.T) {
	t.Parallel()
	const queue, batch, delay = "OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "OTEL_BSP_SCHEDULE_DELAY"
	for _, c := range []struct {
		environ map[string]string
		want    pace
	}{
		{nil, pace{2048, 512, 5 * time.Second}},
		{map[string]string{queue: " 100 ", batch: "10", delay: "20"}, pace{100, 10, 20 * time.Millisecond}},
		{map[string]string{queue: "100"}, pace{100, 100, 5 * time.Second}},
		{map[string]string{queue: "0", batch: "0", delay: "0"}, pace{2048, 512, 5 * time.Second}},
		{map[string]string{queue: "-1", batch: "-1", delay: "-1"}, pace{2048, 512, 5 * time.Second}},
		{map[string]string{queue: "many", batch: "many", delay: "5s"}, pace{2048, 512, 5 * time.Second}},
		{map[string]string{queue: "1000000000000", batch: "1000000000000", delay: "1000000000000"}, pace{1 << 16, 1 << 16, time.Hour}},
	} {
		if got := (environment{func(name string) string { return c.environ[name] }}).pace(); got != c.want {
			t.Errorf("%v: %v, want %v", c.environ, got, c.want)
		}
	}
}
