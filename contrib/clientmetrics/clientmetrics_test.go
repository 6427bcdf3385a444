package clientmetrics_test

import (
	"log"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/contrib/clientmetrics"
)

func Example() {
	limiter, err := client.New("ratelimitd:8081", client.OnFailure(client.FailAllow()))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	prometheus.MustRegister(clientmetrics.New(limiter))
}

func TestStatsAreShown(t *testing.T) {
	t.Parallel()
	c, err := client.New("127.0.0.1:1", client.Timeout(time.Minute), client.OnFailure(client.FailDeny())) // nobody listens
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(clientmetrics.New(c))
	if ok, err := c.Allow(t.Context(), "api", client.E("user", "x")); ok || err != nil {
		t.Fatal(ok, err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sums := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			sums[f.GetName()] += m.GetCounter().GetValue()
		}
	}
	if sums["ratelimitd_client_requests_total"] != 1 || len(sums) != 7 {
		t.Error(sums)
	}
}
