//go:build !race

package limitsfile_test

import (
	"runtime"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

func TestBytesOfARuleInMemoryAreBounded(t *testing.T) {
	const count, maxBytes = 20_000, 700
	for _, list := range []string{limitstest.ManyRules(count), listText(count, "- {key: user, value: u%d, metadata: {tier: free}, rate_limit: {requests: 10, period: 60s}}\n")} {
		path := filetest.Write(t, t.TempDir(), "limits.yaml", list)
		var r *rules.Set
		_, live := growth(func() {
			var err error
			if r, err = limitsfile.Load(path); err != nil {
				t.Fatal(err)
			}
		})
		if live > count*maxBytes {
			t.Errorf("%d bytes a rule, more than %d", live/count, maxBytes)
		}
		runtime.KeepAlive(r)
	}
}
