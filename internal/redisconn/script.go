package redisconn

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// Script is a Lua script with the hash by which servers know it.
type Script struct{ source, sha string }

// NewScript returns the script with this text.
func NewScript(source string) Script {
	return Script{source: source, sha: redis.NewScript(source).Hash()}
}

// Run runs a script within the connection's timeout. It is sent again only if the server
// did not run it, since it lacked the script, or its keys are being moved.
func (c *Conn) Run(ctx context.Context, s Script, keys []string, args ...any) *redis.Cmd {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout())
	defer cancel()
	send := func(command, text string) *redis.Cmd {
		all := []any{command, text, len(keys)}
		for _, key := range keys {
			all = append(all, key)
		}
		cmd := redis.NewCmd(ctx, append(all, args...)...)
		_ = c.Process(ctx, Once{cmd}) // cmd has the error too
		return cmd
	}
	cmd := send("evalsha", s.sha)
	for redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") || redis.HasErrorPrefix(cmd.Err(), "TRYAGAIN") && pause(ctx) {
		cmd = send("eval", s.source)
	}
	if cmd.Err() != nil {
		c.ReloadAfter(ctx, cmd.Err())
	}
	return cmd
}

// pause waits a little, and reports whether ctx has not ended.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(5 * time.Millisecond):
		return true
	}
}

// A script that was refused has written nothing, if it asks for each right and reads each
// key before its first write: Redis refuses it before it runs, or at its first write.
// Errors without one of these prefixes may come after a write.
var (
	passingPrefixes = []string{"READONLY", "LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "BUSY"}
	stayingPrefixes = []string{"OOM", "NOPERM", "MISCONF", "NOREPLICAS", "CROSSSLOT", "WRONGTYPE"}
)

// IsPassing reports whether a refusal ends by itself within seconds, as in a failover.
func IsPassing(err error) bool { return hasPrefix(err, passingPrefixes) }

// IsRefusal reports whether a script that ended with err was refused, for now or until
// someone changes something.
func IsRefusal(err error) bool {
	return IsPassing(err) || hasPrefix(err, stayingPrefixes) || IsScriptsRight(err)
}

func hasPrefix(err error, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}
