//go:build unix

package redistest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// pollEvery is the pause between two looks at a state that is waited for.
const pollEvery = 10 * time.Millisecond

// dial returns a client that retries nothing, so that errors come at once.
func dial(addr, password string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:                     addr,
		Password:                 password,
		PoolSize:                 1,
		MaxRetries:               -1,
		DialerRetries:            1,
		DialTimeout:              10 * time.Second,
		ReadTimeout:              10 * time.Second,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// knock returns nil if something accepts connections at addr. It goes before
// the first command to a server that may not listen yet: a client that could
// not dial says so on stderr and waits a second.
func knock(ctx context.Context, addr string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

// until calls state until it returns nil. If ctx ends first, until returns the last
// error of state.
func until(ctx context.Context, what string, state func(context.Context) error) error {
	for {
		err := state(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w (last: %w)", what, context.Cause(ctx), err)
		case <-time.After(pollEvery):
		}
	}
}

// infoField returns the value of a field in a reply to INFO or CLUSTER INFO.
func infoField(info, field string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), field+":"); ok {
			return v
		}
	}
	return ""
}
