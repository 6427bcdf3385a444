package limitsfile_test

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// limit is a file with one limit, on line 4.
func limit(text string) string { return limitstest.Descriptor("rate_limit: {" + text + "}") }

const (
	domainKeys     = "domain, algorithm, hash_tag, unmatched, descriptors"
	descriptorKeys = "key, value, cidr, network, rate_limit, rate_limits, plans, plan, on_store_failure, shadow_mode, quota_mode, share_threshold, metadata, detailed_metric, value_to_metric, descriptors"
	numberKeys     = "name, algorithm, requests, period, calendar, time_zone, starts, requests_per_unit, unit, burst, sub_windows, hold, postpaid, block_for, lease, replaces, enforce"
	itemKeys       = numberKeys + ", shadow_mode"
	limitKeys      = "unlimited, " + numberKeys
	rates          = "token_bucket, gcra, leaky_bucket, fixed_window, sliding_window, sliding_log"
	algorithms     = rates + ", concurrency"
	periods        = `1ms to 366d in whole milliseconds, such as "90s", "1h30m" or "1.5d" (ms, s, m, h, d)`
	blocks         = `1s to 30d in whole milliseconds, such as "10m" or "1.5h" (ms, s, m, h, d)`
	failureModes   = "local, allow, deny, error"
	spellings      = "requests with period or calendar, or requests_per_unit with unit"
	wholeRequests  = "a whole number from 0 to 4503599627370496"
	names64        = "a name of 1 to 64 bytes without control characters"
	names255       = "a name of 1 to 255 bytes without control characters"
)

// badFiles are files and all that is wrong with each, after the file's name.
var badFiles = []struct {
	name, text string
	want       []string
}{
	// The file as a whole.
	{"empty", "", []string{"1:1: found an empty file; allowed: a domain, with " + domainKeys}},
	{"only a BOM", "\ufeff", []string{"1:1: found an empty file; allowed: a domain, with " + domainKeys}},
	{"a list", "- domain: d\n", []string{"1:1: found a list; allowed: a domain, with " + domainKeys}},
	{"two documents", "domain: d\n---\ndomain: e\n", []string{"2:1: found a second document; allowed: one document in a file"}},
	{"trailing bytes", "domain: d\n...\n}\n", []string{"3:1: found no YAML: did not find expected <document start>"}},
	{"wrong indent", "domain: d\ndescriptors:\n  - key: a\n   value: b\n", []string{"4:4: found no YAML: did not find expected '-' indicator; allowed: as many blanks in front as the items beside it have; quotes around all of a text, and none that stays open above"}},
	{"tab", "domain: d\ndescriptors:\n\t- key: k\n", []string{"3:1: found a tab in the indentation; allowed: blanks; YAML takes no tab there"}},
	{"unknown alias", "domain: d\nalgorithm: *a\n", []string{"2:13: found no YAML: an alias without its anchor; allowed: quotes around a text that begins with *"}},
	{"Latin-1", "domain: d\n# caf\xe9\n", []string{"2:6: found the byte 0xe9, which is not UTF-8; allowed: UTF-8"}},
	{"NUL", "domain: d\x00", []string{`1:10: found the character U+0000; allowed: text; other characters stand as \x or \u escapes in double quotes`}},

	// Keys.
	{"unknown key", "domian: d\n", []string{
		`1:1: found an unknown key "domian" in a domain (domain?); allowed: ` + domainKeys,
		"1:1: found no domain; allowed: domain: NAME, in every file",
	}},
	{"key of another level", "domain: d\nrate_limit: {}\n", []string{
		"2:1: found rate_limit in a domain, but it belongs in a descriptor; allowed: " + domainKeys,
	}},
	{"duplicate key", "domain: d\ndomain: e\n", []string{"2:1: domain: found a second domain, the first is on line 1; allowed: one"}},
	{"list as key", "domain: d\n? [a]\n: b\n", []string{"2:3: found a list as a key; allowed: " + domainKeys}},

	// Domain.
	{"no domain", "descriptors: []\n", []string{"1:1: found no domain; allowed: domain: NAME, in every file"}},
	{"empty domain", "domain: ''\n", []string{"1:9: domain: found an empty text; allowed: " + names255}},
	{"domain with a control character", `domain: "a\x1b[2J"`, []string{`1:9: domain: found the text "a\x1b[2J"; allowed: ` + names255}},
	{"long domain", "domain: " + strings.Repeat("x", 256), []string{
		`1:9: domain: found 256 bytes, "` + strings.Repeat("x", 80) + `..."; allowed: ` + names255,
	}},
	{"domain's algorithm", "domain: d\nalgorithm: fixed-window\n", []string{
		`2:12: algorithm: found the text "fixed-window" (fixed_window?); allowed: ` + rates,
	}},
	{"hash_tag is a mapping", "domain: d\nhash_tag: {key: k}\n", []string{
		"2:11: hash_tag: found a mapping; allowed: the key of an entry of 1 to 255 bytes without control characters",
	}},

	// Descriptors.
	{"descriptor is null", "domain: d\ndescriptors:\n-\n", []string{"3:2: descriptors[0]: found no value; allowed: a descriptor, with " + descriptorKeys}},
	{"no key", "domain: d\ndescriptors:\n- value: v\n", []string{"3:3: descriptors[0]: found no key; allowed: key: NAME, in every descriptor"}},
	{"star in a key", "domain: d\ndescriptors:\n- key: k*\n", []string{
		`3:8: descriptors[0].key: found the text "k*"; allowed: a key without *, which stands for other characters in values only`,
	}},
	{"value is a list", limitstest.Descriptor("value: [a, b]"), []string{
		"4:10: descriptors[0].value: found a list; allowed: a text, a number or a boolean; nothing, to match any value",
	}},
	{"equal values", "domain: d\ndescriptors:\n- {key: k, value: 1}\n- {key: l, value: 1}\n- {key: k, value: '1'}\n", []string{
		`5:3: descriptors[2]: found "k" with the value "1" again, the first is on line 3; allowed: each key with each value once in a list`,
	}},
	{"rate_limit beside rate_limits", "domain: d\ndescriptors:\n- key: k\n  rate_limits: [{name: a, requests: 1, period: 1s}]\n  rate_limit: {requests: 1, period: 1s}\n", []string{
		"5:3: descriptors[0].rate_limit: found rate_limit beside rate_limits; allowed: one of them",
	}},
	{"deep path", "domain: d\ndescriptors:\n- key: a\n- key: b\n- key: c\n  descriptors:\n  - key: e\n    rate_limit: {requests: 1, period: 90}\n", []string{
		`8:39: descriptors[2].descriptors[0].rate_limit.period: found 90 without a unit ("90s" would be seconds); allowed: ` + periods,
	}},

	// Limits.
	{"no numbers", limit("name: a"), []string{"4:15: descriptors[0].rate_limit: found no numbers; allowed: " + spellings}},
	{"requests without period", limit("requests: 5"), []string{"4:15: descriptors[0].rate_limit: found requests without period; allowed: requests with period or calendar"}},
	{"period without requests", limit("period: 5s"), []string{"4:15: descriptors[0].rate_limit: found period without requests; allowed: requests with period or calendar"}},
	{"requests_per_unit without unit", limit("requests_per_unit: 5"), []string{"4:15: descriptors[0].rate_limit: found requests_per_unit without unit; allowed: requests_per_unit with unit"}},
	{"both spellings", limit("requests: 5, period: 1s, requests_per_unit: 5, unit: second"), []string{
		"4:41: descriptors[0].rate_limit.requests_per_unit: found requests beside requests_per_unit; allowed: " + spellings,
	}},
	{"calendar beside period", limit("requests: 5, period: 1d, calendar: day"), []string{
		"4:41: descriptors[0].rate_limit.calendar: found period beside calendar; allowed: " + spellings,
	}},
	{"hold beside calendar", limit("requests: 5, calendar: day, hold: 5s"), []string{
		"4:44: descriptors[0].rate_limit.hold: found hold without algorithm: concurrency; allowed: hold beside algorithm: concurrency, which counts requests in flight",
	}},
	{"calendar without requests", limit("calendar: day"), []string{"4:15: descriptors[0].rate_limit: found calendar without requests; allowed: requests with calendar"}},
	{"calendar", limit("requests: 5, calendar: months"), []string{`4:39: descriptors[0].rate_limit.calendar: found the text "months" (month?); allowed: hour, day, week, month, quarter, year`}},
	{"calendar with another algorithm", limit("algorithm: sliding_window, requests: 5, calendar: day"), []string{
		"4:27: descriptors[0].rate_limit.algorithm: found sliding_window beside calendar; allowed: no algorithm there, or fixed_window",
	}},
	{"calendar with numbers of another algorithm", limit("requests: 5, calendar: day, burst: 9"), []string{
		"4:51: descriptors[0].rate_limit.burst: found 9; allowed: no burst on a fixed_window, only on token_bucket, gcra and leaky_bucket",
	}},
	{"time_zone and starts without calendar", limit("requests: 5, period: 1d, time_zone: UTC, starts: 15"), []string{
		"4:41: descriptors[0].rate_limit.time_zone: found time_zone without calendar; allowed: it beside calendar",
		"4:57: descriptors[0].rate_limit.starts: found starts without calendar; allowed: it beside calendar",
	}},
	{"a time zone that is no place", limit("requests: 5, calendar: day, time_zone: CET"), []string{
		`4:55: descriptors[0].rate_limit.time_zone: found the text "CET"; allowed: UTC, or a place of the IANA's list; the nearest: Europe/Brussels`,
	}},
	{"a misspelt time zone", limit("requests: 5, calendar: day, time_zone: Europe/Berln"), []string{
		`4:55: descriptors[0].rate_limit.time_zone: found the text "Europe/Berln"; allowed: UTC, or a place of the IANA's list; the nearest: Europe/Berlin`,
	}},
	{"starts of another unit", limit("requests: 5, calendar: month, starts: monday"), []string{
		`4:54: descriptors[0].rate_limit.starts: found the text "monday", which is of a week; allowed: a day of the month, such as 15 or "15 06:00"`,
	}},
	{"starts of nothing", limit("requests: 5, calendar: day, starts: '24:00'"), []string{
		`4:52: descriptors[0].rate_limit.starts: found the text "24:00"; allowed: a time, such as "06:00"`,
	}},
	{"all of a calendar wrong", limit("requests: x, calendar: fortnight, time_zone: [a], starts: ~"), []string{
		`4:26: descriptors[0].rate_limit.requests: found the text "x"; allowed: ` + wholeRequests,
		`4:39: descriptors[0].rate_limit.calendar: found the text "fortnight"; allowed: hour, day, week, month, quarter, year`,
		`4:61: descriptors[0].rate_limit.time_zone: found a list; allowed: the name of a time zone, such as Europe/Berlin`,
		`4:74: descriptors[0].rate_limit.starts: found no value; allowed: :MM of an hour, HH:MM of a day, monday or "monday HH:MM" of a week, 15 or "15 HH:MM" of a month, MM-DD of a quarter or year`,
	}},
	{"calendar beside unlimited", limit("unlimited: true, calendar: day"), []string{
		"4:33: descriptors[0].rate_limit.calendar: found calendar beside unlimited; allowed: either unlimited: true or numbers",
	}},
	{"requests is a text", limit("requests: '5', period: 1s"), []string{`4:26: descriptors[0].rate_limit.requests: found the text "5"; allowed: ` + wholeRequests}},
	{"requests is a fraction", limit("requests: 5.0, period: 1s"), []string{"4:26: descriptors[0].rate_limit.requests: found the number 5.0; allowed: " + wholeRequests}},
	{"huge requests", limit("requests_per_unit: 4503599627370497, unit: day"), []string{"4:35: descriptors[0].rate_limit.requests_per_unit: found the number 4503599627370497; allowed: " + wholeRequests}},
	{"beyond 64 bits", limit("requests: 99999999999999999999, period: 1s"), []string{"4:26: descriptors[0].rate_limit.requests: found the number 99999999999999999999; allowed: " + wholeRequests}},
	{"unit", limit("requests_per_unit: 1, unit: minutes"), []string{
		`4:44: descriptors[0].rate_limit.unit: found the text "minutes" (minute?); allowed: second, minute, hour, day, week, month, year`,
	}},
	{"algorithm", limit("requests: 1, period: 1s, algorithm: GCRA"), []string{`4:52: descriptors[0].rate_limit.algorithm: found the text "GCRA"; allowed: ` + algorithms}},
	{"burst 0", limit("requests: 1, period: 1s, burst: 0"), []string{"4:48: descriptors[0].rate_limit.burst: found the number 0; allowed: a whole number from 1 to 4503599627370496"}},
	{"burst on a window", limit("requests: 1, period: 1s, burst: 5, algorithm: sliding_log"), []string{
		"4:48: descriptors[0].rate_limit.burst: found 5; allowed: no burst on a sliding_log, only on token_bucket, gcra and leaky_bucket",
	}},
	{"burst on envoyproxy's spelling", limit("requests_per_unit: 1, unit: day, burst: 5"), []string{
		"4:56: descriptors[0].rate_limit.burst: found 5; allowed: no burst on a fixed_window, only on token_bucket, gcra and leaky_bucket",
	}},
	{"burst beside 0", limit("requests: 0, period: 1s, burst: 5"), []string{"4:48: descriptors[0].rate_limit.burst: found 5; allowed: no burst beside requests 0, which deny always"}},
	{"burst that never refills", limit("requests: 1, period: 300d, burst: 5"), []string{
		"4:50: descriptors[0].rate_limit.burst: found 5, which needs 1500 days to refill; allowed: at most 1 here: a burst refills within 366 days",
	}},
	{"sub_windows on a bucket", limit("requests: 1, period: 1s, sub_windows: 5"), []string{
		"4:54: descriptors[0].rate_limit.sub_windows: found 5; allowed: no sub_windows on a token_bucket, only on sliding_window",
	}},
	{"long log", limit("requests: 1001, period: 1s, algorithm: sliding_log"), []string{
		"4:26: descriptors[0].rate_limit.requests: found 1001; allowed: 0 to 1000 for a sliding_log, which keeps a stamp per request; a sliding_window takes more",
	}},
	{"cannot be exact", limit("requests: 4294967291, period: 31622399999ms"), []string{
		"4:26: descriptors[0].rate_limit.requests: found 4294967291 in 8783h59m59.999s, which a token_bucket cannot count exactly; allowed: at most 142418 requests, or a multiple of 31622399999, or a period of 8783h59m0s, or a fixed_window, which counts every number",
	}},
	{"cannot be exact in a month", limit("algorithm: gcra, requests: 1000000000000000, period: 30d"), []string{
		"4:43: descriptors[0].rate_limit.requests: found 1000000000000000 in 720h0m0s, which a gcra cannot count exactly; allowed: at most 104249991374 requests, or a multiple of 43200, or a fixed_window, which counts every number",
	}},
	{"cannot be exact with a burst", limit("requests: 1000000000000000, period: 30d, burst: 1000000000000000"), []string{
		"4:64: descriptors[0].rate_limit.burst: found 1000000000000000 beside 1000000000000000 requests in 720h0m0s, which a token_bucket cannot count exactly; allowed: at most 166799986198907 here, or a fixed_window, which counts every number",
	}},
	{"postpaid", limit("requests: 1, period: 1s, postpaid: 1"), []string{"4:51: descriptors[0].rate_limit.postpaid: found the number 1; allowed: true, false or auto"}},
	{"postpaid, a word", limit("unit: day, postpaid: always"), []string{`4:37: descriptors[0].rate_limit.postpaid: found the text "always"; allowed: true, false or auto`}},
	{"block_for", limit("requests: 1, period: 1s, block_for: 10"), []string{`4:52: descriptors[0].rate_limit.block_for: found 10 without a unit ("10s" would be seconds); allowed: ` + blocks}},
	{"too long a block_for", limit("requests: 1, period: 1s, block_for: 31d"), []string{"4:52: descriptors[0].rate_limit.block_for: found 744h0m0s; allowed: 1s to 30d in whole milliseconds"}},
	{"block_for on a concurrency", limit("requests: 1, hold: 1s, algorithm: concurrency, block_for: 1m"), []string{
		"4:74: descriptors[0].rate_limit.block_for: found 1m0s; allowed: no block_for on a concurrency, only on token_bucket, gcra and windows",
	}},
	{"block_for on a leaky_bucket", limit("requests: 1, period: 1s, algorithm: leaky_bucket, block_for: 1m"), []string{
		"4:77: descriptors[0].rate_limit.block_for: found 1m0s; allowed: no block_for on a leaky_bucket, only on token_bucket, gcra and windows",
	}},
	{"block_for beside postpaid", limit("requests: 1, period: 1s, postpaid: true, block_for: 1m"), []string{
		"4:68: descriptors[0].rate_limit.block_for: found 1m0s; allowed: no block_for beside postpaid true, since a pause cannot stop what was used already",
	}},
	{"block_for beside unlimited", limit("unlimited: true, block_for: 1m"), []string{
		"4:33: descriptors[0].rate_limit.block_for: found block_for beside unlimited; allowed: either unlimited: true or numbers",
	}},
	{"lease without a unit", limit("requests: 9, period: 1s, lease: 100"), []string{`4:48: descriptors[0].rate_limit.lease: found 100 without a unit ("100s" would be seconds); allowed: 1ms to 1s in whole milliseconds, such as "100ms"`}},
	{"long lease", limit("requests: 100, period: 1m, lease: 1001ms"), []string{"4:50: descriptors[0].rate_limit.lease: found 1.001s; allowed: 1ms to 1s in whole milliseconds"}},
	{"lease over a tenth", limit("requests: 100, period: 1s, burst: 50, lease: 51ms"), []string{
		"4:61: descriptors[0].rate_limit.lease: found 51ms; allowed: at most 50ms here, a tenth of a window or of the time in which a burst refills",
	}},
	{"lease in a short window", limit("requests: 50, period: 9ms, lease: 1ms"), []string{
		"4:50: descriptors[0].rate_limit.lease: found 1ms; allowed: no lease here, since a tenth of a window or of the time in which a burst refills is less than 1ms",
	}},
	{"lease of all that a bucket has", limit("requests: 1, period: 10s, lease: 1s"), []string{
		"4:49: descriptors[0].rate_limit.lease: found 1s; allowed: no lease here, since nothing would remain of the burst",
	}},
	{"lease on a leaky_bucket", limit("algorithm: leaky_bucket, requests: 100, period: 1s, lease: 10ms"), []string{"4:75: descriptors[0].rate_limit.lease: found 10ms; allowed: no lease on a leaky_bucket"}},
	{"lease on a concurrency", limit("algorithm: concurrency, requests: 100, hold: 1m, lease: 10ms"), []string{"4:72: descriptors[0].rate_limit.lease: found 10ms; allowed: no lease on a concurrency"}},
	{"lease of what is charged afterwards", limit("requests: 100, period: 1s, postpaid: true, lease: 10ms"), []string{"4:66: descriptors[0].rate_limit.lease: found 10ms; allowed: no lease beside postpaid: true"}},
	{"lease beside numbers that are wrong", limit("requests: x, period: 10ms, lease: 10ms"), []string{`4:26: descriptors[0].rate_limit.requests: found the text "x"; allowed: ` + wholeRequests}},
	{"name", limit(`requests: 1, period: 1s, name: "a\nb"`), []string{`4:47: descriptors[0].rate_limit.name: found the text "a\nb"; allowed: ` + names64}},
	{"unlimited with numbers", limit("requests_per_unit: 1, unlimited: true, unit: day"), []string{
		"4:16: descriptors[0].rate_limit.requests_per_unit: found requests_per_unit beside unlimited; allowed: either unlimited: true or numbers",
	}},
	{"unlimited is a text", limit("unlimited: 'true'"), []string{`4:27: descriptors[0].rate_limit.unlimited: found the text "true"; allowed: true or false`}},

	{"a ConfigMap", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: limits}\ndata:\n  limits.yaml: |\n    domain: d\n", []string{
		"1:1: found a ConfigMap of Kubernetes; allowed: a file of limits: those of a ConfigMap are in its data",
	}},

	// Flags.
	{"flags without a limit", limitstest.Descriptor("shadow_mode: true\n  quota_mode: false\n  metadata: {a: b}\n  descriptors: [{key: l, rate_limit: {unit: day}}]"), []string{
		"4:3: descriptors[0].shadow_mode: found shadow_mode without a limit; allowed: shadow_mode beside the rate_limit, rate_limits or plans that it is for; those nested in a descriptor are not meant",
		"6:3: descriptors[0].metadata: found metadata without a limit; allowed: metadata beside the rate_limit, rate_limits or plans that it is for; those nested in a descriptor are not meant",
	}},
	{"flag is a number", limitstest.Descriptor("rate_limit: {unit: day}\n  detailed_metric: 1"), []string{
		"5:20: descriptors[0].detailed_metric: found the number 1; allowed: true or false",
	}},
	{"shadow_mode beside quota_mode", limitstest.Descriptor("rate_limit: {unit: day}\n  quota_mode: true\n  shadow_mode: true"), []string{
		"6:3: descriptors[0].shadow_mode: found shadow_mode beside quota_mode; allowed: one of them: a shadow limit never denies, so it has no quota to report",
	}},
	{"share_threshold without a pattern", limitstest.Descriptor("value: v\n  rate_limit: {unit: day}\n  share_threshold: true"), []string{
		"6:3: descriptors[0].share_threshold: found share_threshold without a pattern; allowed: share_threshold beside a value with * or a cidr, for only values of one pattern or network can share a counter",
	}},
	{"replaces itself", limit("unit: day, name: a, replaces: [{name: b}, {name: a}]"), []string{
		"4:65: descriptors[0].rate_limit.replaces[1].name: found the limit's own name; allowed: the name of another limit",
	}},
	{"replaces names nothing", limit("unit: day, replaces: [{}, {name: }, {name: ''}, {name: [a]}, b, {nam: c}]"), []string{
		"4:38: descriptors[0].rate_limit.replaces[0]: found no name; allowed: name: NAME, of the limit to replace",
		"4:42: descriptors[0].rate_limit.replaces[1]: found no name; allowed: name: NAME, of the limit to replace",
		"4:59: descriptors[0].rate_limit.replaces[2].name: found an empty text; allowed: the name of a limit of 1 to 64 bytes without control characters",
		"4:71: descriptors[0].rate_limit.replaces[3].name: found a list; allowed: the name of a limit of 1 to 64 bytes without control characters",
		`4:77: descriptors[0].rate_limit.replaces[4]: found the text "b"; allowed: an item of replaces, with name`,
		"4:80: descriptors[0].rate_limit.replaces[5]: found no name; allowed: name: NAME, of the limit to replace",
		`4:81: descriptors[0].rate_limit.replaces[5]: found an unknown key "nam" in an item of replaces (name?); allowed: name`,
	}},
	{"replaces is a name", limit("unit: day, replaces: a"), []string{
		`4:37: descriptors[0].rate_limit.replaces: found the text "a"; allowed: a list of names of limits: {name: NAME}`,
	}},
	{"metadata is a list", limitstest.Descriptor("rate_limit: {unit: day}\n  metadata: [a]"), []string{
		"5:13: descriptors[0].metadata: found a list; allowed: a mapping",
	}},
	{"metadata", limitstest.Descriptor("rate_limit: {unit: day}\n  metadata:\n    5: a\n    b: .inf\n    c: [!!binary eA==]\n    d: 1\n    d: 2\n    <<: x"), []string{
		"6:5: descriptors[0].metadata: found the number 5 as a key; allowed: a text; quotes make one of a number",
		"7:8: descriptors[0].metadata.b: found the number .inf; allowed: a text, a number, true, false, nothing, a list or a mapping",
		`8:9: descriptors[0].metadata.c[0]: found the !!binary "eA=="; allowed: a text, a number, true, false, nothing, a list or a mapping`,
		`10:5: descriptors[0].metadata.d: found a second "d"; allowed: each key once`,
		`11:5: descriptors[0].metadata: found the !!merge "<<" as a key; allowed: a text; quotes make one of a number`,
	}},
	{"deep metadata", limitstest.Descriptor("rate_limit: {unit: day}\n  metadata: {a: " + strings.Repeat("[", 32) + strings.Repeat("]", 32) + "}"), []string{
		"5:48: descriptors[0].metadata.a" + strings.Repeat("[0]", 31) + ": found metadata within more than 31 mappings and lists; allowed: fewer",
	}},

	// Lists of limits.
	{"no limits", limitstest.Descriptor("rate_limits: []"), []string{"4:16: descriptors[0].rate_limits: found an empty list; allowed: at least one limit"}},
	{"limits without names", limitstest.Descriptor("rate_limits: [{requests: 1, period: 1s}, {name: '', requests: 1, period: 1s}]"), []string{
		"4:17: descriptors[0].rate_limits[0]: found no name; allowed: name: NAME, in every item of rate_limits",
		"4:51: descriptors[0].rate_limits[1].name: found an empty text; allowed: " + names64,
	}},
	{"limits with equal names", limitstest.Descriptor("rate_limits:\n  - {name: a, requests: 1, period: 1s}\n  - {name: a, requests: 2, period: 2s}"), []string{
		`6:12: descriptors[0].rate_limits[1].name: found the name "a" again, the first is on line 5; allowed: a name for each item of rate_limits`,
	}},
	{"unlimited in a list", limitstest.Descriptor("rate_limits: [{name: a, unlimited: true}]"), []string{
		"4:17: descriptors[0].rate_limits[0]: found no numbers; allowed: " + spellings,
		"4:27: descriptors[0].rate_limits[0]: found unlimited in an item of rate_limits, but it belongs in a rate_limit; allowed: " + itemKeys,
	}},

	// What answers when the store does not.
	{"failure mode", limitstest.Descriptor("rate_limit: {requests: 1, period: 1s}\n  on_store_failure: dney"), []string{
		`5:21: descriptors[0].on_store_failure: found the text "dney" (deny?); allowed: ` + failureModes,
	}},
	{"failure mode without a limit", "domain: d\ndescriptors:\n- key: k\n  on_store_failure: deny\n  descriptors: [{key: l, rate_limit: {requests: 1, period: 1s}}]\n", []string{
		"4:3: descriptors[0].on_store_failure: found on_store_failure without a limit; allowed: on_store_failure beside limits with numbers",
	}},
	{"failure mode beside unlimited", limitstest.Descriptor("on_store_failure: allow\n  rate_limit: {unlimited: true}"), []string{
		"4:3: descriptors[0].on_store_failure: found on_store_failure beside unlimited; allowed: on_store_failure beside limits with numbers",
	}},
	{"failure mode in a limit", limit("requests: 1, period: 1s, on_store_failure: deny"), []string{
		"4:41: descriptors[0].rate_limit: found on_store_failure in a rate_limit, but it belongs in a descriptor; allowed: " + limitKeys,
	}},

	// Everything is reported at once, without what only follows from it.
	{"many", limit("requests: x, period: 0s, burst: 5, sub_windows: 61, algorithm: tokenbucket, foo: 1"), []string{
		`4:26: descriptors[0].rate_limit.requests: found the text "x"; allowed: ` + wholeRequests,
		`4:37: descriptors[0].rate_limit.period: found "0s"; allowed: ` + periods,
		"4:64: descriptors[0].rate_limit.sub_windows: found the number 61; allowed: a whole number from 1 to 60",
		`4:79: descriptors[0].rate_limit.algorithm: found the text "tokenbucket" (token_bucket?); allowed: ` + algorithms,
		`4:92: descriptors[0].rate_limit: found an unknown key "foo" in a rate_limit; allowed: ` + limitKeys,
	}},

	// Anchors.
	{"cycle", "domain: d\ndescriptors: &a\n- key: k\n  descriptors: *a\n", []string{"4:16: found *a inside its own anchor; allowed: an alias after what it names"}},
	{"merge into itself", "domain: d\ndescriptors:\n- &a\n  key: k\n  <<: *a\n", []string{"5:7: found *a inside its own anchor; allowed: an alias after what it names"}},
	{"merge of a text", "domain: d\n<<: x\n", []string{`2:5: <<: found the text "x"; allowed: an alias of a mapping, or a list of them`}},
	{"a mistake behind an anchor", "domain: d\ndescriptors:\n- {key: a, rate_limit: &l {requests: 1, period: 1w}}\n- {key: b, rate_limit: *l}\n", []string{
		`3:49: descriptors[0].rate_limit.period: found "1w", where one of ms, s, m, h and d must follow "1"; allowed: ` + periods,
	}},
}

func TestEachErrorSaysWhereAndWhat(t *testing.T) {
	schema := limitsSchema(t)
	for _, c := range badFiles {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			schema.refuses(t, c.name, c.text)
			for _, text := range []string{c.text, strings.ReplaceAll(c.text, "\n", "\r\n")} {
				path := filetest.Write(t, t.TempDir(), "limits.yaml", text)
				_, err := limitsfile.Load(path)
				var errs yamlfile.Errors
				if !errors.As(err, &errs) {
					t.Fatalf("not Errors but %T: %v", err, err)
				}
				got := strings.ReplaceAll(err.Error(), path+":", "")
				if want := strings.Join(c.want, "\n"); got != want {
					t.Errorf("%q\ngot:\n%s\nwant:\n%s", text, got, want)
				}
			}
		})
	}
}

func TestAliasesThatMultiplyAreRefused(t *testing.T) {
	t.Parallel()
	var s strings.Builder
	s.WriteString("domain: d\ndescriptors:\n- key: a\n  descriptors: &l0 [{key: k, rate_limit: {requests: 1, period: 1s}}]\n")
	for i := 1; i < 60; i++ {
		name, last := string(rune('0'+i/10))+string(rune('0'+i%10)), string(rune('0'+(i-1)/10))+string(rune('0'+(i-1)%10))
		if i == 1 {
			last = "0"
		}
		s.WriteString("- key: a" + name + "\n  descriptors: &l" + name + " [{key: a, descriptors: *l" + last + "}, {key: b, descriptors: *l" + last + "}]\n")
	}
	_, err := limitstest.Load(t, s.String())
	if err == nil || !strings.Contains(err.Error(), "aliases that multiply to more than a million nodes") {
		t.Errorf("error is %v", err)
	}
}

func TestDescriptorsThatNestTooDeepAreRefused(t *testing.T) {
	t.Parallel()
	nested := func(levels int) string {
		return "domain: d\ndescriptors: " + strings.Repeat("[{key: k, descriptors: ", levels) + "[]" + strings.Repeat("}]", levels)
	}
	if _, err := limitstest.Load(t, nested(255)); err != nil {
		t.Error(err)
	}
	for _, levels := range []int{257, 5000, 20000} {
		t.Run(fmt.Sprint(levels), func(t *testing.T) {
			_, err := limitstest.Load(t, nested(levels))
			if err == nil || !strings.Contains(err.Error(), ":2:") || len(err.Error()) > 5000 {
				t.Errorf("%d levels: error is %v", levels, err)
			}
		})
	}
}

func TestAllErrorsOfAllFilesAreReported(t *testing.T) {
	dir := t.TempDir()
	filetest.Write(t, dir, "b.yaml", "domain: x\nfoo: 1\n")
	filetest.Write(t, dir, "a/z.yml", "domain: y\nbar: 1\nalgorithm: 5\n")
	filetest.Write(t, dir, "c.json", `{"domain": "x"}`)
	_, err := limitsfile.Load(dir)
	want := []string{
		"a/z.yml:2:1: found an unknown key \"bar\" in a domain; allowed: " + domainKeys,
		"a/z.yml:3:12: algorithm: found the text \"5\"; allowed: " + rates,
		"b.yaml:2:1: found an unknown key \"foo\" in a domain; allowed: " + domainKeys,
		"c.json:1:12: domain: found the domain \"x\" again, which is also in b.yaml:1; allowed: each domain in one file, unless limits.merge_domains is true",
	}
	if got := strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), ""); got != strings.Join(want, "\n") {
		t.Errorf("\ngot:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
	var one yamlfile.Error
	if !errors.As(err, &one) || one.Line != 2 || one.Column != 1 {
		t.Errorf("the first error is %+v", one)
	}
}

func TestAMissingPathIsAnErrorOfTheSystem(t *testing.T) {
	_, err := limitsfile.Load(filepath.Join(t.TempDir(), "none"))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error is %v", err)
	}
}
