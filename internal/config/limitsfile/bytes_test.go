//go:build !race

package limitsfile_test

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

func heapBytes() int64 {
	runtime.GC()
	debug.FreeOSMemory()
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

func TestBytesOfARuleInMemoryAreBounded(t *testing.T) {
	const count, maxBytes = 20_000, 720
	var withMetadata strings.Builder
	withMetadata.WriteString("domain: d\ndescriptors:\n")
	for i := range count {
		fmt.Fprintf(&withMetadata, "- {key: user, value: u%d, metadata: {tier: free}, rate_limit: {requests: 10, period: 60s}}\n", i)
	}
	for _, list := range []string{limitstest.ManyRules(count), withMetadata.String()} {
		path := filetest.Write(t, t.TempDir(), "limits.yaml", list)
		before := heapBytes()
		r, err := limitsfile.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if live := heapBytes() - before; live > count*maxBytes {
			t.Errorf("%d bytes a rule, more than %d", live/count, maxBytes)
		}
		runtime.KeepAlive(r)
	}
}
