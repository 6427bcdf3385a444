package assigntext_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// Different entries look different, and are read back.
func FuzzEntries(f *testing.F) {
	f.Add("tenant", "acme", "region", "eu")
	f.Add("a=b,", `c\`, ",", "=")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		want := []*ratelimitv1.Entry{{Key: k1, Value: v1}, {Key: k2, Value: v2}}
		text := assigntext.FormatEntries(want)
		got, err := assigntext.ParseEntries(text)
		if err != nil || len(got) != 2 || !proto.Equal(got[0], want[0]) || !proto.Equal(got[1], want[1]) {
			t.Errorf("%v is written as %q and read as %v: %v", want, text, got, err)
		}
	})
}
