package integration

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
)

// The client says when the month of the cookbook's recipe ends.
func TestRecipeOfAMonthInGo(t *testing.T) {
	t.Parallel()
	d := start(t, "--limits-path", write(t, t.TempDir(), "limits.yaml", blockFrom(t, "docs/cookbook.md", "yaml", "domain: quota")))
	limiter, err := client.New(d.grpc, client.Timeout(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	result, err := limiter.Take(t.Context(), client.Request{
		Domain:      "quota",
		Descriptors: []client.Descriptor{{Entries: []client.Entry{client.E("customer", "initech")}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	months := 0
	for _, l := range result.Limits {
		if l.ResetAt.IsZero() {
			continue
		}
		months++
		end := l.ResetAt.In(berlin)
		if l.Remaining != 99_999 || l.Calendar.Unit != client.CalendarMonth || end.Day() != 1 || end.Hour() != 0 || !end.After(time.Now()) {
			t.Errorf("%d left of a calendar %v until %v", l.Remaining, l.Calendar.Unit, end)
		}
	}
	if months != 1 {
		t.Errorf("%d limits have a moment of their reset", months)
	}
}
