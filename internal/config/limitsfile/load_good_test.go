package limitsfile_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// example uses every key of a limits file.
const exampleTable = `domain d (limits.yaml:2), keys placed by tenant
  RULE                   NAME   ALGORITHM       LIMIT
  tenant                 -      gcra            20 at once, then about 1.11 a second
  tenant / user=alice    short  token_bucket    10 at once, then 10 a second; on store failure: deny
                         long   sliding_window  250 requests in any day, in 24 sub-windows, charged afterwards; on store failure: deny
  tenant / user=bot-*    bots   -               unlimited
  ip                     -      fixed_window    5 requests a minute
  job / kind=15          -      gcra            denies always
  job / kind=true        -      sliding_log     1 request in any 90 minutes
  path=/files/*          burst  gcra            5 at once, then 5 a second; replaces short, long; quota, shared by all values of the pattern, counted by value, with metadata nested, tier, weights
                         total  gcra            100 at once, then one every 36s
  path                   -      gcra            7 at once, then about one every 8m 34s; shadow, counted by all values
`

func TestTableShowsAllLimits(t *testing.T) {
	path := filetest.Write(t, t.TempDir(), "limits.yaml", limitstest.Example)
	r, err := limitsfile.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	squeeze := func(s string) string {
		lines := strings.Split(s, "\n")
		for i := range lines {
			lines[i] = strings.Join(strings.Fields(lines[i]), " ")
		}
		return strings.Join(lines, "\n")
	}
	if got := strings.ReplaceAll(table(t, r), path, "limits.yaml"); squeeze(got) != squeeze(exampleTable) {
		t.Errorf("got:\n%s", got)
	}
	if w := r.Warnings(); len(w) != 0 {
		t.Errorf("warnings: %v", w)
	}
	if r.Count() != 8 || len(r.Domain("d").Rules()) != 8 {
		t.Errorf("%d rules", r.Count())
	}
	if rule := r.Domain("d").Rules()[1]; rule.Path() != "tenant / user=alice" || rule.File != path || rule.Line != 9 {
		t.Errorf("rule is %s at %s:%d", rule.Path(), rule.File, rule.Line)
	}
}

func TestRulesMayBeWrittenInManyWays(t *testing.T) {
	const plain = `domain: d
descriptors:
- key: k
  value: a
  rate_limit: {requests_per_unit: 5, unit: hour}
- key: k
  rate_limit: {requests_per_unit: 5, unit: hour}
`
	for name, text := range map[string]string{
		"BOM":            "\ufeff" + plain,
		"CRLF":           strings.ReplaceAll(plain, "\n", "\r\n"),
		"document marks": "%YAML 1.1\n---\n" + plain + "...\n",
		"anchor":         strings.Replace(strings.Replace(plain, "rate_limit: {", "rate_limit: &l {", 1), "k\n  rate_limit: {requests_per_unit: 5, unit: hour}", "k\n  rate_limit: *l", 1),
		"merge":          "domain: d\ndescriptors:\n- &a {key: k, value: a, rate_limit: {requests_per_unit: 5, unit: hour}}\n- {<<: *a, value: }\n",
		"merge list":     "domain: d\ndescriptors:\n- &a {key: k, value: a, rate_limit: &b {requests_per_unit: 5, unit: hour}}\n- {key: k, rate_limit: {<<: [{unit: hour}, {unit: day, requests_per_unit: 5}]}}\n",
		"JSON":           "{\n\t\"domain\": \"d\",\n\t\"descriptors\": [\n\t\t{\"key\": \"k\", \"value\": \"a\", \"rate_limit\": {\"requests_per_unit\": 5, \"unit\": \"HOUR\"}},\n\t\t{\"key\": \"k\", \"rate_limit\": {\"unit\": \"hour\", \"requests_per_unit\": 5}}]}",
		"empty keys":     "domain: d\ndescriptors:\n- {key: k, value: a, rate_limit: {requests_per_unit: 5, unit: hour, name: '', unlimited: }, descriptors: }\n- {key: k, value: '', rate_limit: {requests_per_unit: 5, unit: hour, unlimited: false}, descriptors: []}\n",
		"notation":       "domain: d\ndescriptors:\n- {key: k, value: a, rate_limit: {requests_per_unit: 0x5, unit: hour}}\n- {key: k, rate_limit: {requests_per_unit: +5, unit: hour, unlimited: no}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			d := limitstest.Domain(t, text)
			for _, es := range []string{"k=a", "k=b"} {
				rule := d.Match(limitstest.Entries(es))
				if rule == nil || len(rule.Limits) != 1 {
					t.Fatalf("%s: rule %+v", es, rule)
				}
				want := bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 5, Period: time.Hour, Postpaid: bucket.PostpaidAuto}
				if rule.Limits[0].Spec != want {
					t.Errorf("%s: limit %+v", es, rule.Limits[0].Spec)
				}
			}
			if a, b := d.Match(limitstest.Entries("k=a")), d.Match(limitstest.Entries("k=b")); a == b {
				t.Error("the bare key and the exact value are one rule")
			}
		})
	}
}

// Also where the numbers of several rules are the same.
func TestFailureModeIsThatOfAllLimitsOfARule(t *testing.T) {
	d := limitstest.Domain(t, `domain: d
descriptors:
- {key: none, rate_limit: {requests: 1, period: 1s}}
- key: allow
  rate_limit: {requests: 1, period: 1s}
  on_store_failure: allow
  descriptors: [{key: below, rate_limit: {requests: 1, period: 1s}}]
- {key: local, on_store_failure: local, rate_limits: [{name: a, requests: 1, period: 1s}, {name: b, requests: 1, period: 2s}]}
- {key: deny, on_store_failure: 'deny', rate_limit: {requests: 1, period: 1s}}
- &e {key: error, on_store_failure: error, rate_limit: {requests: 1, period: 1s}}
- {<<: *e, key: merged}
`)
	for es, want := range map[string]bucket.FailureMode{
		"none=": bucket.FailureDefault, "allow=": bucket.FailAllow, "allow=,below=": bucket.FailureDefault,
		"local=": bucket.FailLocal, "deny=": bucket.FailDeny, "error=": bucket.FailError, "merged=": bucket.FailError,
	} {
		t.Run(es, func(t *testing.T) {
			for _, l := range d.Match(limitstest.Entries(es)).Limits {
				if l.OnStoreFailure != want {
					t.Errorf("%s: mode %d, want %d", es, l.OnStoreFailure, want)
				}
			}
		})
	}
}

func TestNumbersOfEitherSpelling(t *testing.T) {
	spec := func(a bucket.Algorithm, requests int64, period time.Duration) bucket.Spec {
		s := bucket.Spec{Algorithm: a, Requests: requests, Period: period}
		if a.IsBucket() {
			s.Burst = requests
		}
		return s
	}
	// Their limits are charged in full for what a descriptor reports.
	theirs := func(a bucket.Algorithm, requests int64, period time.Duration) bucket.Spec {
		s := spec(a, requests, period)
		s.Postpaid = bucket.PostpaidAuto
		return s
	}
	blocking := func(s bucket.Spec) bucket.Spec {
		s.BlockFor = 90 * time.Minute
		return s
	}
	with := func(s bucket.Spec, p bucket.Postpaid) bucket.Spec {
		s.Postpaid = p
		return s
	}
	leased := func(s bucket.Spec, lease time.Duration) bucket.Spec {
		s.Lease = lease
		return s
	}
	const day = 24 * time.Hour
	for _, c := range []struct {
		domain, limit string
		want          bucket.Spec
	}{
		{"", "requests: 5, period: 1s", spec(bucket.TokenBucket, 5, time.Second)},
		{"", "requests_per_unit: 5, unit: second", theirs(bucket.FixedWindow, 5, time.Second)},
		{"algorithm: leaky_bucket", "requests_per_unit: 5, unit: WEEK", theirs(bucket.LeakyBucket, 5, 7*day)},
		{"algorithm: fixed_window", "requests: 5, period: 30d", spec(bucket.FixedWindow, 5, 30*day)},
		{"algorithm: fixed_window", "requests: 5, period: 30d, algorithm: gcra", spec(bucket.GCRA, 5, 30*day)},
		{"", "unit: month", theirs(bucket.FixedWindow, 0, 30*day)},
		{"", "requests_per_unit: , unit: year", theirs(bucket.FixedWindow, 0, 365*day)},
		{"", "requests_per_unit: 1, unit: dAy", theirs(bucket.FixedWindow, 1, day)},
		{"", "requests_per_unit: 4294967295, unit: minute", theirs(bucket.FixedWindow, 4294967295, time.Minute)},
		{"", "requests_per_unit: 4503599627370496, unit: month", theirs(bucket.FixedWindow, 1<<52, 30*day)},
		{"algorithm: fixed_window", "requests: 10_000_000_000, period: 30d", spec(bucket.FixedWindow, 10_000_000_000, 30*day)},
		{"algorithm: gcra", "requests: 4503599627370496, period: 1s", spec(bucket.GCRA, 1<<52, time.Second)},
		{"", "requests_per_unit: 1, unit: day, postpaid: false", spec(bucket.FixedWindow, 1, day)},
		{"", "requests_per_unit: 1, unit: day, postpaid: true", with(spec(bucket.FixedWindow, 1, day), bucket.PostpaidAlways)},
		{"", "requests_per_unit: 1, unit: day, postpaid: auto", theirs(bucket.FixedWindow, 1, day)},
		{"", "requests: 1, period: 1d, block_for: 1.5h", blocking(spec(bucket.TokenBucket, 1, day))},
		{"", "requests_per_unit: 1, unit: day, block_for: 90m", blocking(spec(bucket.FixedWindow, 1, day))}, // not postpaid: auto
		{"", "requests: 1, period: 1d, postpaid: auto", with(spec(bucket.TokenBucket, 1, day), bucket.PostpaidAuto)},
		{"", "requests: 1, period: 1d, postpaid: yes", with(spec(bucket.TokenBucket, 1, day), bucket.PostpaidAlways)},
		{"", "requests: 1000, period: 1s, lease: 100ms", leased(spec(bucket.TokenBucket, 1000, time.Second), 100*time.Millisecond)},
		{"", "requests: 5, period: 10s, algorithm: sliding_log, lease: 1s", leased(spec(bucket.SlidingLog, 5, 10*time.Second), time.Second)},
		{"", "requests_per_unit: 1, unit: day, postpaid: false, lease: 0.5s", leased(spec(bucket.FixedWindow, 1, day), time.Second/2)},
		{"", "requests: 0, period: 1s, lease: 1ms", leased(spec(bucket.TokenBucket, 0, time.Second), time.Millisecond)},
		{"", "requests: 1_000, period: 1m", spec(bucket.TokenBucket, 1000, time.Minute)},
		{"", "requests: 1, period: 1h30m", spec(bucket.TokenBucket, 1, 90*time.Minute)},
		{"", "requests: 1, period: 1.5h", spec(bucket.TokenBucket, 1, 90*time.Minute)},
		{"", "requests: 1, period: 2d", spec(bucket.TokenBucket, 1, 2*day)},
		{"", "requests: 1, period: 366d", spec(bucket.TokenBucket, 1, 366*day)},
		{"", "requests: 1, period: 1ms", spec(bucket.TokenBucket, 1, time.Millisecond)},
		{"", "requests: 1, period: 0.001s", spec(bucket.TokenBucket, 1, time.Millisecond)},
		{"", "requests: 1, period: 1m1ms", spec(bucket.TokenBucket, 1, time.Minute+time.Millisecond)},
		{"", "requests: 1, period: 0.5ms0.5ms", spec(bucket.TokenBucket, 1, time.Millisecond)},
	} {
		t.Run(c.domain+" "+c.limit, func(t *testing.T) {
			d := limitstest.Domain(t, "domain: d\n"+c.domain+"\ndescriptors: [{key: k, rate_limit: {"+c.limit+"}}]")
			if got := d.Match(limitstest.Entries("k=v")).Limits[0].Spec; got != c.want {
				t.Errorf("%s %s: %+v", c.domain, c.limit, got)
			}
		})
	}
}

func TestCalendarsAreRead(t *testing.T) {
	for _, c := range []struct {
		domain, limit string
		unit          bucket.CalendarUnit
		starts, zone  string
	}{
		{"", "requests: 5, calendar: hour, starts: ':15'", bucket.CalendarHour, ":15", "UTC"},
		{"", "requests: 5, calendar: day", bucket.CalendarDay, "", "UTC"},
		{"", "requests: 5, calendar: day, starts: 06:00, time_zone: Europe/Berlin", bucket.CalendarDay, "06:00", "Europe/Berlin"},
		{"", "requests: 5, calendar: week, starts: monday, time_zone: UTC", bucket.CalendarWeek, "", "UTC"},
		{"", "requests: 5, calendar: week, starts: sunday 06:00", bucket.CalendarWeek, "sunday 06:00", "UTC"},
		{"", "requests: 5, calendar: month, starts: 15", bucket.CalendarMonth, "15", "UTC"},
		{"", "requests: 5, calendar: month, starts: '15 06:00'", bucket.CalendarMonth, "15 06:00", "UTC"},
		{"", "requests: 5, calendar: quarter, starts: 02-01", bucket.CalendarQuarter, "02-01", "UTC"},
		{"", "requests: 5, calendar: year, starts: '04-06', time_zone: Europe/London", bucket.CalendarYear, "04-06", "Europe/London"},
		{"algorithm: gcra", "requests: 5, calendar: day", bucket.CalendarDay, "", "UTC"},
		{"", "requests: 5, calendar: day, algorithm: fixed_window", bucket.CalendarDay, "", "UTC"},
	} {
		t.Run(c.domain+" "+c.limit, func(t *testing.T) {
			d := limitstest.Domain(t, "domain: d\n"+c.domain+"\ndescriptors: [{key: k, rate_limit: {"+c.limit+"}}]")
			got := d.Match(limitstest.Entries("k=v")).Limits[0]
			if got.Algorithm != bucket.FixedWindow || got.Requests != 5 || got.Postpaid != bucket.PostpaidNever || got.Period != got.Calendar.Period() ||
				got.Calendar.Unit != c.unit || got.Calendar.Starts.String() != c.starts || got.Calendar.Zone.String() != c.zone {
				t.Errorf("%+v", got.Spec)
			}
		})
	}
}

func TestBadPeriodsAreRefused(t *testing.T) {
	for _, period := range []string{
		"''", "90", "1.5", "s", "1", "-1s", "+1s", "1 s", "1S", "1M", "1us", "1ns", "1w", "1y", "1s1", "1..5s", ".5s", "1.s", "1e3s", "0s", "0.0h",
		"366d1ms", "0.5ms", "1.0005s", "99999999999999999999d", "1h 30m", "'1h,30m'", "1:30", strings.Repeat("1s", 40), "[1s]", "true", "٣s",
	} {
		t.Run(period, func(t *testing.T) {
			if _, err := limitstest.Load(t, limit("requests: 1, period: "+period)); err == nil || !strings.Contains(err.Error(), "rate_limit.period") {
				t.Errorf("%s: error is %v", period, err)
			}
		})
	}
}

func TestFolderIsReadWithItsFolders(t *testing.T) {
	dir := t.TempDir()
	for name, domain := range map[string]string{
		"a.yaml": "a", "b.yml": "b", "c.json": "c", "sub/deep/d.yaml": "d", "folder.yaml/e.yaml": "e", // read
		".f.yaml": "f", ".hidden/g.yaml": "g", "h.txt": "h", "i.yaml.bak": "i", "j.yaml~": "j", "K.YAML.swp": "k", "..2024/l.yaml": "l", // not
	} {
		filetest.Write(t, dir, name, `{"domain": "`+domain+`"}`)
	}
	outside := t.TempDir()
	filetest.Write(t, outside, "m.yaml", "domain: m")
	filetest.Write(t, outside, "n/n.yaml", "domain: n")
	filetest.Link(t, filepath.Join(outside, "m.yaml"), filepath.Join(dir, "m.yaml"))
	filetest.Link(t, filepath.Join(outside, "n"), filepath.Join(dir, "linked"))
	filetest.Link(t, dir, filepath.Join(dir, "loop"))
	filetest.Link(t, "..", filepath.Join(dir, "sub", "up"))
	r, err := limitsfile.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range r.Domains() {
		got = append(got, d.Name)
	}
	if s := strings.Join(got, ""); s != "abcdemn" {
		t.Errorf("domains are %s", s)
	}
	var warned []string
	for _, w := range r.Warnings() {
		if strings.Contains(w.Text, "passed over") {
			warned = append(warned, strings.TrimPrefix(w.File, dir+"/"))
		}
	}
	if s := strings.Join(warned, " "); s != "K.YAML.swp h.txt i.yaml.bak j.yaml~" {
		t.Errorf("warned of %s", s)
	}
}

func TestBrokenLinksAreErrors(t *testing.T) {
	dir := t.TempDir()
	filetest.Write(t, dir, "a.yaml", "domain: a")
	filetest.Link(t, "none", filepath.Join(dir, "b.yaml"))
	filetest.Link(t, "c.yaml", filepath.Join(dir, "c.yaml"))
	filetest.Link(t, "none", filepath.Join(dir, "d.txt"))
	_, err := limitsfile.Load(dir)
	if err == nil || strings.Count(err.Error(), "found a file that cannot be read: ") != 2 ||
		!strings.Contains(err.Error(), filepath.Join(dir, "b.yaml")+": found a file that cannot be read: no such file") {
		t.Errorf("error is %v", err)
	}
}

func TestEmptyFolderIsAWarning(t *testing.T) {
	dir := t.TempDir()
	r, err := limitsfile.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Domains()) != 0 || len(r.Warnings()) != 1 || !strings.HasPrefix(r.Warnings()[0].String(), dir+": no .yaml") {
		t.Errorf("%d domains, warnings %v", len(r.Domains()), r.Warnings())
	}
}

func TestAFileThatIsNamedMayHaveAnyName(t *testing.T) {
	r, err := limitsfile.Load(filetest.Write(t, t.TempDir(), ".limits", "domain: d"))
	if err != nil || r.Domain("d") == nil || r.Domain("e") != nil {
		t.Errorf("%v, error %v", r, err)
	}
}
