//go:build unix

package redistest

import (
	"context"
	"fmt"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/wait"
)

const image = "redis:7-alpine"

// startContainer starts a Redis in Docker.
func startContainer(ctx context.Context) (addr string, stop func(), err error) {
	defer func() { // testcontainers panics where there is no Docker
		if r := recover(); r != nil {
			err = fmt.Errorf("start a container: %v", r)
		}
	}()
	log.SetDefault(log.NewNoopLogger())
	ctr, err := testcontainers.Run(ctx, image,
		testcontainers.WithCmd("redis-server", "--save", "", "--protected-mode", "no"),
		testcontainers.WithExposedPorts("6379/tcp"),
		testcontainers.WithWaitStrategy(wait.ForLog("Ready to accept connections")))
	stop = func() { _ = testcontainers.TerminateContainer(ctr) }
	if err == nil {
		addr, err = answering(ctx, ctr)
	}
	if err != nil {
		stop()
	}
	return addr, stop, err
}

// answering returns where a container's Redis answers on this machine. Where the engine
// runs elsewhere, it does not.
func answering(ctx context.Context, ctr testcontainers.Container) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	port, err := ctr.MappedPort(ctx, "6379/tcp")
	if err != nil {
		return "", err
	}
	addr := loopback(int(port.Num()))
	c := dial(addr, "")
	defer c.Close()
	return addr, until(ctx, "wait for "+addr, func(ctx context.Context) error { return c.Ping(ctx).Err() })
}
