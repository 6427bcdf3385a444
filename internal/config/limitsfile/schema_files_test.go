package limitsfile_test

import (
	"encoding/json"
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/config/schematest"
)

// publishedSchema is docs/limits.schema.json.
type publishedSchema struct{ schematest.Schema }

func limitsSchema(t *testing.T) publishedSchema {
	t.Helper()
	return publishedSchema{schematest.Load(t, "limits.schema.json")}
}

// onlyCode are the faults in files of these tests that the schema cannot express, with the
// reason.
var onlyCode = map[string]string{
	"two documents":  aFile,
	"trailing bytes": aFile,

	"requests is a fraction":         "5.0 and 5 are one number there",
	"deep metadata":                  "it does not count how deep it is",
	"too long a block_for":           spans,
	"long lease":                     spans,
	"lease over a tenth":             arithmetic,
	"lease in a short window":        arithmetic,
	"lease of all that a bucket has": arithmetic,

	"equal values":                                                  twoPlaces,
	"limits with equal names":                                       twoPlaces,
	"replaces itself":                                               twoPlaces,
	"a default that is no plan":                                     twoPlaces,
	"a hash tag of the holder":                                      twoPlaces,
	"one counter for all below a pattern":                           twoPlaces,
	"the network 10.0.0.0/8 again, the first is on line 3":          twoPlaces,
	`"a" with the value "10.0.0.0/8" again, the first is on line 3`: twoPlaces,
	"burst on envoyproxy's spelling":                                theDomain,
	"sub_windows on a bucket":                                       theDomain,
	"burst that never refills":                                      arithmetic,
	"cannot be exact":                                               arithmetic,
	"cannot be exact in a month":                                    arithmetic,
	"cannot be exact with a burst":                                  arithmetic,
	`the text "10.0.0.1/8"`:                                         arithmetic,
	`the text "::ffff:10.0.0.0/104"`:                                arithmetic,
	"a network of 7 bits, which is larger than 10.0.0.0/8":          arithmetic,
	"a time zone that is no place":                                  calendars,
	"a misspelt time zone":                                          calendars,
	"starts of another unit":                                        calendars,
	"starts of nothing":                                             calendars,
}

const (
	spans      = "spans are texts there"
	aFile      = "it describes one document, not a file"
	twoPlaces  = "it compares no texts of two places"
	theDomain  = "the algorithm may be the domain's, which a limit's part does not know"
	arithmetic = "it does not calculate"
	calendars  = "zones and the forms of starts are too many for a pattern"
)

// refuses checks that the schema refuses a bad file, unless only code can judge it. name
// is its case.
func (s publishedSchema) refuses(t *testing.T, name, text string) {
	t.Helper()
	if err := s.Validate(text); (err == nil) != (onlyCode[name] != "") {
		t.Errorf("%s: the schema says %v, and in onlyCode is %q", name, err, onlyCode[name])
	}
}

func TestSchemaTakesGoodFiles(t *testing.T) {
	t.Parallel()
	schema := limitsSchema(t)
	if n := schema.ValidateAll(t, regexp.MustCompile(`(?m)^domain:`)); n < 40 {
		t.Errorf("only %d files", n)
	}
	if err := schema.Validate(strings.Replace(limitstest.Example, "Minute", "minute", 1)); err != nil {
		t.Error(err)
	}
}

type mapping = map[string]any

// The parser and the schema agree about each key with values of all kinds.
func TestSchemaJudgesAsTheParser(t *testing.T) {
	t.Parallel()
	schema := limitsSchema(t)
	values := []any{
		"x", "1s", "10%", "day", "minute", "auto", "deny", "gcra", "concurrency", "", strings.Repeat("x", 256), 0, 1, 61, 1001, 1.5, -1, int64(1<<52 + 1), true, false,
		[]any{}, []any{"10.0.0.0/8"}, []any{mapping{"name": "x"}}, mapping{}, mapping{"ipv4": 8}, mapping{"name": "x"},
	}
	judgedByCode := map[string]bool{"starts": true, "time_zone": true, "plan": true, "lease": true} // see onlyCode
	// each tries all keys beside those of part, which stands at a place of the file.
	each := func(keys string, part mapping, file func(mapping) mapping) {
		for _, key := range strings.Split(keys, ", ") {
			for _, value := range values {
				changed := maps.Clone(part)
				changed[key] = value
				text, err := json.Marshal(file(changed))
				if err != nil {
					t.Fatal(err)
				}
				_, parsed := limitsfile.Options{}.LoadTexts([]limitsfile.Text{{Name: "limits.json", Text: string(text)}})
				judged := schema.Validate(string(text))
				if (parsed == nil) != (judged == nil) && !(judged == nil && judgedByCode[key]) {
					t.Errorf("%s\nparser: %v\nschema: %v", text, parsed, judged)
				}
			}
		}
	}
	descriptor := func(d mapping) mapping { return mapping{"domain": "d", "descriptors": []any{d}} }
	limits := []mapping{
		{"unlimited": true},
		{"requests": 1, "calendar": "day"},
		{"requests_per_unit": 1, "unit": "minute", "algorithm": "fixed_window"},
		{"requests": 1, "hold": "1m", "algorithm": "concurrency"},
	}
	for _, a := range bucket.Algorithms() {
		limits = append(limits, mapping{"requests": 1, "period": "1m", "algorithm": a.String()})
	}
	each(domainKeys, mapping{"domain": "d"}, func(d mapping) mapping { return d })
	for _, limit := range limits {
		each(limitKeys, limit, func(l mapping) mapping { return descriptor(mapping{"key": "k", "rate_limit": l}) })
	}
	limit := limits[1]
	each(descriptorKeys, mapping{"key": "k", "rate_limit": limit}, descriptor)
	each(descriptorKeys, mapping{"key": "k", "value": "a*", "plans": mapping{"p": limit}}, descriptor)
	each("ipv4, ipv6", mapping{}, func(n mapping) mapping { return descriptor(mapping{"key": "k", "network": n, "rate_limit": limit}) })
	each(itemKeys, mapping{"name": "n", "requests": 1, "period": "1m", "algorithm": "sliding_window"}, func(l mapping) mapping {
		return descriptor(mapping{"key": "k", "rate_limits": []any{l}})
	})
	each("name", mapping{}, func(r mapping) mapping {
		return descriptor(mapping{"key": "k", "rate_limit": mapping{"requests": 1, "calendar": "day", "replaces": []any{r}}})
	})
}
