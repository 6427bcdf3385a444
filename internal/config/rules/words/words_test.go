package words_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
)

// A hint's subject can be pasted into a command, and one that is cut says so.
func TestShownEntriesCanBePasted(t *testing.T) {
	for want, shown := range map[string][]bucket.Entry{
		"plan=free,tenant=acme":                   {{Key: "plan", Value: "free"}, {Key: "tenant", Value: "acme"}},
		"user=":                                   {{Key: "user"}},
		`'user=it'\''s $HOME'`:                    {{Key: "user", Value: "it's $HOME"}},
		`'path=/a\,b,k\=\u{202e}=x y'`:            {{Key: "path", Value: "/a,b"}, {Key: "k=\u202e", Value: "x y"}},
		"user=" + strings.Repeat("u", 80) + "...": {{Key: "user", Value: strings.Repeat("u", 81)}},
		strings.Repeat("k=v,", 6) + "...":         slices.Repeat([]bucket.Entry{{Key: "k", Value: "v"}}, 7),
	} {
		if got := words.Entries(shown); got != want {
			t.Errorf("%q is shown as %s, want %s", shown, got, want)
		}
	}
}

// However long entries are, a sentence has room for them, and each says that it is cut.
func TestShownEntriesAreShort(t *testing.T) {
	for _, letter := range []string{"v", "\u202e", "\xff", "'", "\\"} {
		long := strings.Repeat(letter, 500)
		for n := range 9 {
			shown := slices.Repeat([]bucket.Entry{{Key: long, Value: long}}, n+1)
			text := words.Entries(shown)
			if len(text) > 500 || strings.Count(text, "...") < 2*min(n+1, 6) {
				t.Errorf("%d entries of %q are shown in %d bytes: %s", n+1, letter, len(text), text)
			}
		}
	}
	four := slices.Repeat([]bucket.Entry{{Key: "key", Value: strings.Repeat("v", 120)}}, 4)
	if got, want := words.Entries(four), strings.TrimSuffix(strings.Repeat("key="+strings.Repeat("v", 40)+"...,", 4), ","); got != want {
		t.Errorf("four long entries are shown as %s, want %s", got, want)
	}
}

func TestDescribeSaysALimitInWords(t *testing.T) {
	for want, s := range map[string]bucket.Spec{
		"20 in flight, each free after 1m of silence":                            {Algorithm: bucket.Concurrency, Requests: 20, Period: time.Minute},
		"20 at once, then one every 6s":                                          {Algorithm: bucket.TokenBucket, Requests: 10, Period: time.Minute, Burst: 20},
		"5 requests a minute, and who goes over is paused for 10m":               {Algorithm: bucket.FixedWindow, Requests: 5, Period: time.Minute, BlockFor: 10 * time.Minute},
		"1 at once, then one an hour":                                            {Algorithm: bucket.GCRA, Requests: 1, Period: time.Hour},
		"10 at once, then 10 a second":                                           {Algorithm: bucket.LeakyBucket, Requests: 10, Period: time.Second},
		"60 at once, then one a second":                                          {Algorithm: bucket.TokenBucket, Requests: 60, Period: time.Minute},
		"90 at once, then 90 a minute":                                           {Algorithm: bucket.TokenBucket, Requests: 90, Period: time.Minute},
		"3 at once, then 3 every 2 seconds":                                      {Algorithm: bucket.TokenBucket, Requests: 3, Period: 2 * time.Second},
		"1 at once, then one every 300ms":                                        {Algorithm: bucket.TokenBucket, Requests: 1, Period: 300 * time.Millisecond},
		"1 at once, then about one every 1m 2s":                                  {Algorithm: bucket.TokenBucket, Requests: 1, Period: 61500 * time.Millisecond},
		"1 at once, then one every 366d":                                         {Algorithm: bucket.TokenBucket, Requests: 1, Period: bucket.MaxPeriod},
		"7 at once, then about one every 8.57s":                                  {Algorithm: bucket.TokenBucket, Requests: 7, Period: time.Minute},
		"10,000 at once, then about one every 4m 19s":                            {Algorithm: bucket.TokenBucket, Requests: 10_000, Period: 30 * 24 * time.Hour},
		"5,000 at once, then about 1.39 a second":                                {Algorithm: bucket.TokenBucket, Requests: 5000, Period: time.Hour},
		"5,400 at once, then 1.5 a second":                                       {Algorithm: bucket.TokenBucket, Requests: 5400, Period: time.Hour},
		"100,000,000 at once, then about 38.6 a second":                          {Algorithm: bucket.TokenBucket, Requests: 100_000_000, Period: 30 * 24 * time.Hour},
		"4,294,967,295 at once, then about 1,657 a second":                       {Algorithm: bucket.TokenBucket, Requests: 1<<32 - 1, Period: 30 * 24 * time.Hour},
		"4,294,967,295 at once, then 4,294,967,295,000 a second":                 {Algorithm: bucket.TokenBucket, Requests: 1<<32 - 1, Period: time.Millisecond},
		"4,503,599,627,370,496 at once, then 4,503,599,627,370,496,000 a second": {Algorithm: bucket.TokenBucket, Requests: bucket.MaxRequests, Period: time.Millisecond},
		"4,503,599,627,356,800 at once, then about 1,737,499,856 a second":       {Algorithm: bucket.TokenBucket, Requests: bucket.MaxRequests - bucket.MaxRequests%43_200, Period: 30 * 24 * time.Hour},
		"10,000,000,000 requests every 30 days":                                  {Algorithm: bucket.FixedWindow, Requests: 10_000_000_000, Period: 30 * 24 * time.Hour},
		"3,597 at once, then about one every 1s":                                 {Algorithm: bucket.TokenBucket, Requests: 3597, Period: time.Hour},
		"3,601 at once, then about 1 a second":                                   {Algorithm: bucket.TokenBucket, Requests: 3601, Period: time.Hour},
		"1,000,000 requests every 30 days":                                       {Algorithm: bucket.FixedWindow, Requests: 1_000_000, Period: 30 * 24 * time.Hour},
		"5 requests every 30 days":                                               {Algorithm: bucket.FixedWindow, Requests: 5, Period: 30 * 24 * time.Hour},
		"5 requests a year":                                                      {Algorithm: bucket.FixedWindow, Requests: 5, Period: 365 * 24 * time.Hour},
		"5 requests a week":                                                      {Algorithm: bucket.FixedWindow, Requests: 5, Period: 7 * 24 * time.Hour},
		"5 requests every 14 days":                                               {Algorithm: bucket.FixedWindow, Requests: 5, Period: 14 * 24 * time.Hour},
		"5 requests every 1001 milliseconds":                                     {Algorithm: bucket.FixedWindow, Requests: 5, Period: 1001 * time.Millisecond},
		"5 requests in any second":                                               {Algorithm: bucket.SlidingWindow, Requests: 5, Period: time.Second},
		"5 requests in any 2 hours":                                              {Algorithm: bucket.SlidingLog, Requests: 5, Period: 2 * time.Hour},
		"1,000 at once, then 1,000 a second; decided in the caller for up to 100ms; bursts of 900 instead of 1,000": {Algorithm: bucket.GCRA, Requests: 1000, Period: time.Second, Lease: 100 * time.Millisecond},
		"5 requests in any minute; decided in the caller for up to 1s; each request counts 1s longer":               {Algorithm: bucket.SlidingLog, Requests: 5, Period: time.Minute, Lease: time.Second},
		"5 requests a minute; decided in the caller for up to 20ms; on store failure: deny":                         {Algorithm: bucket.FixedWindow, Requests: 5, Period: time.Minute, Lease: 20 * time.Millisecond, OnStoreFailure: bucket.FailDeny},
		"denies always":                                        {Algorithm: bucket.SlidingLog, Period: 2 * time.Hour},
		"denies always; on store failure: allow":               {Algorithm: bucket.SlidingLog, Period: 2 * time.Hour, OnStoreFailure: bucket.FailAllow},
		"1 at once, then one an hour; on store failure: local": {Algorithm: bucket.GCRA, Requests: 1, Period: time.Hour, OnStoreFailure: bucket.FailLocal},
		"1 at once, then one an hour; on store failure: error": {Algorithm: bucket.GCRA, Requests: 1, Period: time.Hour, OnStoreFailure: bucket.FailError},
	} {
		t.Run(want, func(t *testing.T) {
			l, err := bucket.NewLimit(s)
			if err != nil {
				t.Fatal(err)
			}
			if got := words.Limit(l); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}
