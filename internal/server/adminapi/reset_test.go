package adminapi

import "testing"

func TestALimitWithoutANameIsToldInWords(t *testing.T) {
	for want, names := range map[string][]string{
		"":                              nil,
		"the limit without a name":      {""},
		"month":                         {"month"},
		"the limit without a name, day": {"", "day"},
	} {
		if got := limitNames(names); got != want {
			t.Errorf("%q: got %q, want %q", names, got, want)
		}
	}
}
