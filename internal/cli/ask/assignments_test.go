package ask

import (
	"strings"
	"testing"

	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// Pages of a long list have the same columns.
func TestPagesHaveTheSameColumns(t *testing.T) {
	var s strings.Builder
	write := listWriter(&s, "", false)
	for i, key := range []string{"tenant", "t"} {
		page := []*adminv1.Assignment{{Domain: "api", Entries: []*ratelimitv1.Entry{{Key: key, Value: "x"}}, Plan: "pro"}}
		if err := write(page, i == 0); err != nil {
			t.Fatal(err)
		}
	}
	if want := "DOMAIN  ENTRIES   BY  AT  ASSIGNED\napi     tenant=x  -   -   plan pro\napi     t=x       -   -   plan pro\n"; s.String() != want {
		t.Errorf("got\n%s\nwant\n%s", s.String(), want)
	}
}
