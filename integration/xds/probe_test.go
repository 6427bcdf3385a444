package xds_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// probeOf is the variable with the address of the daemon that a probe asks.
const probeOf = "XDS_TEST_PROBE_OF"

// probe asks a daemon again and again, a millisecond apart, until its standard input
// ends, and prints how many answers there were and how long the slowest took. It is a
// process of its own: the one that plays the xDS server is busy when it sends a large
// configuration, and would measure itself.
func probe(address string) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	client := rlsv3.NewRateLimitServiceClient(conn)
	ask := func() (time.Duration, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		began := time.Now()
		_, err := client.ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{Domain: "d", Descriptors: []*commonv3.RateLimitDescriptor{
			{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "user", Value: "a"}}},
		}})
		return time.Since(began), err
	}
	if _, err := ask(); err != nil { // which connects
		return err
	}
	fmt.Println("ready")
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	var slowest time.Duration
	for n := 0; ; n++ {
		select {
		case <-ended:
			_, err := fmt.Println(n, int64(slowest))
			return err
		case <-time.After(time.Millisecond):
		}
		took, err := ask()
		if err != nil {
			return err
		}
		slowest = max(slowest, took)
	}
}

// probing returns what a probe measured while do ran.
func (d *daemon) probing(t *testing.T, do func()) (asked int, slowest time.Duration) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), probeOf+"="+d.grpc)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := ""
	if _, err := fmt.Fscan(out, &ready); err != nil {
		t.Fatal(err)
	}
	do()
	in.Close()
	if _, err := fmt.Fscan(out, &asked, &slowest); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return asked, slowest
}
