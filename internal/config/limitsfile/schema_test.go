package limitsfile

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/schematest"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

type object = schematest.Object

// The published schema is the one of these levels.
func TestSchemaIsPublished(t *testing.T) {
	page, err := os.ReadFile(schematest.Root + "docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	ofLimits, ofRules := described(string(page), "Keys of a limit"), described(string(page), "Flags of a rule")
	level := func(l *yamlfile.Level, what map[string]string, rules ...any) object {
		s := schematest.OfLevel(t, l, what)
		if rules != nil {
			s["allOf"] = rules
		}
		return s
	}
	schema := level(domainLevel, nil)
	schema["definitions"] = object{
		"descriptor": level(descriptorLevel, ofRules, descriptorRules()...),
		"network":    level(networkLevel, nil, object{"minProperties": 1}),
		"limit":      level(limitLevel, ofLimits, when(is("unlimited", true), without(besideUnlimited()...), object{"allOf": limitRules()})),
		"item":       level(limitItemLevel, ofLimits, append(limitRules(), when(is("shadow_mode", true), without("enforce")))...),
		"replaced":   level(replacesLevel, nil),
	}
	schematest.Publish(t, "limits.schema.json", "A limits file of ratelimitd", "limits.md", schema)
}

// described returns what the table of a section says of each key.
func described(page, section string) map[string]string {
	_, text, _ := strings.Cut(page, "\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n#")
	what := make(map[string]string)
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?) \\| (.*) \\|$").FindAllStringSubmatch(text, -1) {
		plain := regexp.MustCompile(`\[(.*?)\]\(.*?\)`).ReplaceAllString(row[2], "$1")
		for _, key := range regexp.MustCompile("`(.*?)`").FindAllStringSubmatch(row[1], -1) {
			what[key[1]] = strings.ReplaceAll(plain, "`", "")
		}
	}
	return what
}

func has(names ...string) object { return object{"required": names} }

func is(name string, value any) object {
	return object{"required": []string{name}, "properties": object{name: object{"const": value}}}
}

func without(names ...string) object {
	properties := object{}
	for _, name := range names {
		properties[name] = false
	}
	return object{"properties": properties}
}

func when(condition, then object, otherwise ...object) object {
	rule := object{"if": condition, "then": then}
	for _, o := range otherwise {
		rule["else"] = o
	}
	return rule
}

// beside is what goes with a key.
func beside(key string, rule any) object { return object{"dependencies": object{key: rule}} }

// besideUnlimited are the keys that mean nothing beside unlimited.
func besideUnlimited() (names []string) {
	for _, f := range limitFields {
		if f.Name != "replaces" {
			names = append(names, f.Name)
		}
	}
	return names
}

// limitRules says what a limit with numbers may have together.
func limitRules() []any {
	spellings := []numberSpelling{ourSpelling, calendarSpelling, envoySpelling, holdSpelling}
	var ways []any
	for _, s := range spellings {
		way := without("time_zone", "starts")
		properties := way["properties"].(object)
		needed := []string{s.period}
		switch s {
		case calendarSpelling:
			properties = numbersOf(s.algorithm)
			properties["algorithm"] = object{"const": s.algorithm.String()}
		case holdSpelling:
			properties["algorithm"] = object{"const": s.algorithm.String()}
			needed = append(needed, "algorithm")
		default:
			properties["algorithm"] = object{"enum": yamlfile.NamesOf(rateAlgorithms())}
		}
		if s != envoySpelling {
			needed = append(needed, s.requests)
		}
		for _, other := range spellings {
			for _, key := range []string{other.requests, other.period} {
				if key != s.requests && key != s.period {
					properties[key] = false
				}
			}
		}
		ways = append(ways, object{"required": needed, "properties": properties})
	}
	all := []any{object{"anyOf": ways}, when(is("requests", 0), without("burst")),
		beside("block_for", object{"properties": object{"postpaid": object{"const": false}, "lease": false}}),
		beside("lease", object{"properties": object{"postpaid": object{"const": false}}}),
	}
	for _, a := range bucket.Algorithms() {
		if properties := numbersOf(a); len(properties) > 0 {
			all = append(all, when(is("algorithm", a.String()), object{"properties": properties}))
		}
	}
	return all
}

// numbersOf says which numbers of a limit an algorithm does not have, or how large they
// may be.
func numbersOf(a bucket.Algorithm) object {
	properties := object{}
	for name, change := range map[string]func(*bucket.Spec){
		"burst":       func(s *bucket.Spec) { s.Burst = 1 },
		"sub_windows": func(s *bucket.Spec) { s.SubWindows = 1 },
		"postpaid":    func(s *bucket.Spec) { s.Postpaid = bucket.PostpaidAlways },
		"lease":       func(s *bucket.Spec) { s.Lease = bucket.MinPeriod },
		"block_for":   func(s *bucket.Spec) { s.BlockFor = bucket.MinBlockFor },
	} {
		s := bucket.Spec{Algorithm: a, Requests: 9, Period: time.Second}
		change(&s)
		if _, err := bucket.NewLimit(s); err != nil {
			properties[name] = false
		}
	}
	if properties["postpaid"] == false {
		properties["postpaid"] = object{"const": false}
	}
	if most := map[bucket.Algorithm]int{bucket.SlidingLog: bucket.MaxLogRequests, bucket.Concurrency: bucket.MaxHolders}[a]; most > 0 {
		properties["requests"], properties["requests_per_unit"] = object{"maximum": most}, object{"maximum": most}
	}
	return properties
}

// descriptorRules says what a descriptor may have together.
func descriptorRules() []any {
	var anyLimit []any
	for _, kind := range kindsOfLimits {
		anyLimit = append(anyLimit, has(kind))
	}
	limited := object{"anyOf": anyLimit}
	pattern := object{"type": "string", "pattern": `\*`}
	all := []any{
		object{"properties": object{"key": object{"not": pattern}}},
		beside("plan", []string{"plans"}),
		beside("cidr", without("value")),
		beside("network", object{"properties": object{"value": pattern, "share_threshold": false}}),
		beside("on_store_failure", limited),
		beside("metadata", limited),
		when(object{"required": []string{"rate_limit"}, "properties": object{"rate_limit": is("unlimited", true)}}, without(onStoreFailure)),
		when(is("shadow_mode", true), object{"properties": object{"quota_mode": object{"const": false}}}),
		when(is("share_threshold", true), object{
			"properties": object{"plans": false},
			"anyOf":      []any{has("cidr"), object{"required": []string{"value"}, "properties": object{"value": pattern}}},
		}),
	}
	// Requests in flight are alone in a rule, whose last entry names the holder.
	name, inFlight := "algorithm", bucket.Concurrency.String()
	holders := object{"anyOf": []any{is(name, inFlight), is("unlimited", true)}}
	rates := object{"properties": object{name: object{"not": object{"const": inFlight}}}}
	all = append(all, object{"anyOf": []any{eachLimit(rates), object{"allOf": []any{
		eachLimit(holders), without("cidr", "network"), object{"properties": object{"share_threshold": object{"const": false}}},
	}}}})
	for _, f := range ruleFlags {
		all = append(all, when(is(f.name, true), limited))
	}
	for _, kind := range kindsOfLimits {
		others := slices.DeleteFunc(slices.Clone(kindsOfLimits), func(k string) bool { return k == kind })
		all = append(all, beside(kind, without(others...)))
	}
	return all
}

// eachLimit says something of each limit of a descriptor.
func eachLimit(s object) object {
	return object{"properties": object{
		"rate_limit":  s,
		"rate_limits": object{"items": s},
		"plans":       object{"additionalProperties": object{"allOf": []any{s, object{"items": s}}}},
	}}
}
