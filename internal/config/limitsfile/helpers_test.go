package limitsfile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
)

func table(t testing.TB, r *rules.Set) string {
	t.Helper()
	var s strings.Builder
	if err := words.WriteTable(&s, r, time.Unix(1_800_000_000, 0)); err != nil {
		t.Fatal(err)
	}
	return s.String()
}
