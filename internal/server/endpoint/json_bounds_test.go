package endpoint

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/decide"
)

func TestJSONBeyondTheBoundsIsRefused(t *testing.T) {
	b := BoundsOfRequest(decide.Bounds{Descriptors: 2, Entries: 2, Bytes: 1000}) // 60 values
	for _, c := range []struct{ name, body, says string }{
		{"nothing", "", ""},
		{"a request", `{"domain":"api","descriptors":[{"entries":[{"key":"k","value":"v"},{"key":"k"}],"limit":{"unit":"HOUR"}},{}]}`, ""},
		{"what stands in texts", `{"domain":"` + strings.Repeat(`,[{\"`, 1000) + `"}`, ""},
		{"a text without an end", `{"domain":"` + strings.Repeat(`,`, 1000), ""},
		{"an escape without an end", `{"domain":"\`, ""},
		{"as many values as there may be", `[` + strings.Repeat(`1,`, 58) + `1]`, ""},
		{"one more", `[` + strings.Repeat(`1,`, 59) + `1]`, "it holds more values than 2 descriptors of 2 entries have"},
		{"empty objects", `[` + strings.Repeat(`{},`, 30), "more values"},
		{"as deep as may be", strings.Repeat(`[`, 16) + strings.Repeat(`]`, 16), ""},
		{"deeper", strings.Repeat(`[`, 17), "it is nested deeper"},
		{"deeper by objects", strings.Repeat(`{"a":`, 17), "it is nested deeper"},
		{"what closes more than it opens", strings.Repeat(`]`, 1000), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := b.check([]byte(c.body))
			if got := errorText(err); (c.says == "") != (err == nil) || !strings.Contains(got, c.says) {
				t.Errorf("got %q, want %q", got, c.says)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
