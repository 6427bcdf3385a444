package limitsfile_test

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// Texts make the rules that their files make, and their errors name them.
func TestTextsLoadAsFiles(t *testing.T) {
	t.Parallel()
	const text = "domain: d\ndescriptors: [{key: k, rate_limit: {requests: 5, period: 1s}}]\n"
	want, err := limitsfile.Load(filetest.Write(t, t.TempDir(), "limits.yaml", text))
	if err != nil {
		t.Fatal(err)
	}
	got, err := limitsfile.Options{}.LoadTexts([]limitsfile.Text{{Name: "limits.yaml", Text: text}})
	if err != nil || got.Fingerprint() != want.Fingerprint() {
		t.Errorf("%v, %v", got, err)
	}
	if live := rules.Fixed(got); live.Rules() != got {
		t.Errorf("%p is in force, not %p", live.Rules(), got)
	}
	if _, err := (limitsfile.Options{}).LoadTexts([]limitsfile.Text{{Name: "bad.yaml", Text: "domain: 5:"}}); err == nil {
		t.Error("a bad text loads")
	}
}
