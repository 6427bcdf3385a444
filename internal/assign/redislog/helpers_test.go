package redislog_test

import (
	"context"
	"os"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
)

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// scriptHook calls before before each call of a script, with its number. An error of it is
// the result of the call.
type scriptHook struct {
	before func(n int64, cmd redis.Cmder) error
	n      *atomic.Int64
}

func newScriptHook(before func(n int64, cmd redis.Cmder) error) scriptHook {
	return scriptHook{before: before, n: new(atomic.Int64)}
}

func isScript(cmd redis.Cmder) bool { return slices.Contains([]string{"eval", "evalsha"}, cmd.Name()) }

func (h scriptHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h scriptHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !isScript(cmd) {
			return next(ctx, cmd)
		}
		if err := h.before(h.n.Add(1), cmd); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (h scriptHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
