package redislog

import (
	"context"
	_ "embed" // the scripts
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/redisconn"
)

//go:embed may.lua
var maySource string

//go:embed change.lua
var changeSource string

//go:embed reset.lua
var resetSource string

//go:embed sweep.lua
var sweepSource string

//go:embed rights.lua
var rightsSource string

//go:embed restore.lua
var restoreSource string

// script is a script with the hash by which servers know it.
type script struct{ source, sha string }

func newScript(source string) script {
	return script{source: source, sha: redis.NewScript(source).Hash()}
}

var (
	changeScript = newScript(maySource + changeSource)
	resetScript  = newScript(maySource + resetSource)
	sweepScript  = newScript(sweepSource)

	restoreScript = newScript(maySource + restoreSource)
	rightsScript  = newScript(rightsSource)
)

// call is one run of a script.
type call struct {
	tag  *tag
	keys []string
	args []any
	cmd  *redis.Cmd
	// mayHaveRun says that the reply to it was lost at least once.
	mayHaveRun bool
}

// run sends calls together and waits for their replies; each has its own in cmd, or an
// error. What a server did not run, because it lacks the script or its slot is being
// moved, is sent again.
func (s *Store) run(ctx context.Context, sc script, calls []*call) {
	ctx, cancel := context.WithTimeout(ctx, s.redis.Timeout())
	defer cancel()
	defer func() {
		for _, c := range calls {
			if err := c.cmd.Err(); err != nil && !isRefusal(err) {
				c.mayHaveRun = true
			}
		}
	}()
	s.send(ctx, "evalsha", sc.sha, calls)
	unloaded := failedWith(calls, "NOSCRIPT")
	if len(unloaded) > 0 {
		s.send(ctx, "eval", sc.source, unloaded)
	}
	for {
		moving := failedWith(calls, "TRYAGAIN")
		if len(moving) == 0 {
			return
		}
		if !pause(ctx, 5*time.Millisecond) {
			return
		}
		s.send(ctx, "eval", sc.source, moving)
	}
}

func failedWith(calls []*call, prefix string) (failed []*call) {
	for _, c := range calls {
		if redis.HasErrorPrefix(c.cmd.Err(), prefix) {
			failed = append(failed, c)
		}
	}
	return failed
}

func (s *Store) send(ctx context.Context, command, script string, calls []*call) {
	pipe := s.redis.Pipeline()
	for _, c := range calls {
		args := []any{command, script, len(c.keys)}
		for _, k := range c.keys {
			args = append(args, k)
		}
		c.cmd = redis.NewCmd(ctx, append(args, c.args...)...)
		_ = pipe.Process(ctx, redisconn.Once{Cmder: c.cmd})
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
}
