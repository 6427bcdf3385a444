package redisconn

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// EachMaster calls f for each master, on a cluster from several goroutines at once. It
// returns the first error.
func (c *Conn) EachMaster(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	switch u := c.UniversalClient.(type) {
	case *redis.ClusterClient:
		return u.ForEachMaster(ctx, f)
	case *redis.Client:
		return f(ctx, u)
	}
	return nil
}

// Info returns fields of sections of a server's INFO.
func Info(ctx context.Context, c *redis.Client, sections ...string) (map[string]string, error) {
	text, err := c.Info(ctx, sections...).Result()
	if err != nil {
		return nil, err
	}
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
	}
	return fields, nil
}
