package buckettest

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// scenarios are the scenarios that every store must pass.
var scenarios = []scenario{
	{
		// A token comes back every 6 seconds, a full bucket takes 2 minutes.
		name:   "token_bucket",
		limits: []bucket.Spec{perMinute(bucket.TokenBucket, 10, 20)},
		steps: []step{
			ok(0, 0, 20, 0),
			ok(0, 1, 19, 6*s),
			ok(0, 19, 0, 120*s),
			no(0, 1, 0, 6*s, 120*s),
			no(0, 0, 0, 6*s, 120*s),
			no(6*s-us, 1, 0, us, 114*s+us),
			ok(6*s, 1, 0, 120*s),
			no(18*s, 3, 2, 6*s, 108*s),
			no(18*s, 20, 2, 108*s, 108*s),
			ok(24*s, 3, 0, 120*s),
			no(24*s, 21, 0, nvr, 120*s),
			ok(24*s, -5, 5, 90*s),
			ok(24*s, -100, 20, 0),
			ok(24*s, 0, 20, 0),
			no(24*s, 21, 20, nvr, 0),
		},
	},
	{
		// A third of a second is not a whole number of microseconds: waits round up, and
		// the fraction is not lost.
		name:   "gcra",
		limits: []bucket.Spec{{Algorithm: bucket.GCRA, Requests: 3, Period: s, Burst: 2}},
		steps: []step{
			ok(0, 2, 0, 666_667*us),
			no(333_333*us, 1, 0, us, 333_334*us),
			ok(333_334*us, 1, 0, 666_666*us),
			no(333_334*us, 1, 0, 333_333*us, 666_666*us),
			ok(666_667*us, 1, 0, 666_667*us),
			no(1000_000*us-us, 1, 0, us, 333_335*us),
			ok(1000_000*us, 1, 0, 666_667*us),
		},
	},
	{
		// Even spacing: each hit waits until the ones before it have drained.
		name:   "leaky_bucket",
		limits: []bucket.Spec{perMinute(bucket.LeakyBucket, 10, 3)},
		steps: []step{
			ok(0, 1, 2, 6*s).waits(0),
			ok(0, 1, 1, 12*s).waits(6 * s),
			ok(0, 1, 0, 18*s).waits(12 * s),
			no(0, 1, 0, 6*s, 18*s).waits(18 * s),
			ok(7*s, 1, 0, 17*s).waits(11 * s),
			ok(7*s, -3, 3, 0).waits(17 * s),
			ok(7*s, 0, 3, 0),
		},
	},
	{
		name:   "fixed_window",
		limits: []bucket.Spec{perMinute(bucket.FixedWindow, 3, 0)},
		steps: []step{
			ok(50*s, 0, 3, 0),
			ok(50*s, 1, 2, 10*s),
			ok(51*s, 2, 0, 9*s),
			no(51*s, 1, 0, 9*s, 9*s),
			no(60*s-us, 0, 0, us, us),
			ok(60*s, 3, 0, 60*s),
			no(61*s, 1, 0, 59*s, 59*s),
			no(61*s, 4, 0, nvr, 59*s),
			ok(61*s, -1, 1, 59*s),
			no(61*s, 2, 1, 59*s, 59*s),
			ok(61*s, -9, 3, 0),
			ok(200*s, 1, 2, 40*s),
		},
	},
	{
		// Slots of 10 seconds from their first hit.
		name:   "sliding_window",
		limits: []bucket.Spec{{Algorithm: bucket.SlidingWindow, Requests: 4, Period: mn, SubWindows: 6}},
		steps: []step{
			ok(0, 1, 3, 60*s),
			ok(10*s-us, 1, 2, 60*s), // the same slot: it now counts until 70s-1us
			ok(10*s, 1, 1, 60*s),
			ok(59*s, 1, 0, 60*s),
			no(59*s, 1, 0, 11*s-us, 60*s),
			no(59*s, 3, 0, 11*s, 60*s),
			no(70*s-2*us, 1, 0, us, 49*s+2*us),
			ok(70*s-us, 1, 1, 60*s),
			ok(70*s, 0, 2, 60*s-us),
			ok(70*s, -1, 3, 60*s-us), // from the hit at 59s
			ok(70*s, 3, 0, 60*s),
			no(129*s, 4, 0, 1*s, 1*s), // all of the newest slot dies at once
			ok(130*s, 4, 0, 60*s),
			no(130*s, 5, 0, nvr, 60*s),
		},
	},
	{
		name:   "sliding_log",
		limits: []bucket.Spec{perMinute(bucket.SlidingLog, 3, 0)},
		steps: []step{
			ok(0, 1, 2, 60*s),
			ok(20*s, 1, 1, 60*s),
			ok(30*s, 1, 0, 60*s),
			no(30*s, 1, 0, 30*s, 60*s),
			no(30*s, 2, 0, 50*s, 60*s),
			no(60*s-us, 1, 0, us, 30*s+us),
			ok(60*s, 1, 0, 60*s),
			no(60*s, 4, 0, nvr, 60*s),
			ok(60*s, -1, 1, 60*s), // the hit at 20s
			no(60*s, 2, 1, 30*s, 60*s),
			ok(90*s, 2, 0, 60*s),
		},
	},
	{
		// The first denial starts a pause, which nothing extends.
		name:   "block_for",
		limits: []bucket.Spec{blocking(bucket.TokenBucket, 5, mn, 10*mn), perMinute(bucket.TokenBucket, 5, 0)},
		steps: []step{
			ok(0, 0, 5, 0),
			ok(0, 5, 0, 60*s),
			no(0, 0, 0, 12*s, 60*s), // a peek starts none
			no(0, 6, 0, nvr, 60*s),  // nor does what never passes
			no(0, 1, 0, 10*mn, 10*mn),
			no(1*mn, 0, 0, 9*mn, 9*mn),
			no(5*mn, 1, 0, 5*mn, 5*mn),
			no(5*mn, 6, 0, nvr, 5*mn),
			ok(5*mn, -5, 0, 5*mn),
			ok(5*mn, 0, 5, 0).by(1), // without block_for there is none
			no(10*mn-us, 5, 0, us, us),
			ok(10*mn, 5, 0, 60*s),
			no(10*mn, 1, 0, 10*mn, 10*mn),
			ok(11*mn, 1, 4, 12*s).by(1), // which ends it
			ok(11*mn, 4, 0, 60*s),
		},
	},
	{
		// After a pause, denials start another only once something was admitted again.
		name:   "block_for within a window",
		limits: []bucket.Spec{blocking(bucket.FixedWindow, 3, hr, mn), blocking(bucket.FixedWindow, 3, hr, 2*mn)},
		steps: []step{
			ok(0, 3, 0, hr),
			no(0, 1, 0, hr, hr),
			no(mn, 1, 0, 59*mn, 59*mn),
			ok(mn, -2, 2, 59*mn),
			no(mn, 3, 2, 59*mn, 59*mn),
			ok(mn, 1, 1, 59*mn),
			no(mn, 2, 0, 59*mn, 59*mn), // this starts one
			ok(mn, -3, 0, mn),
			no(90*s, 1, 0, 30*s, 30*s).by(1), // other numbers hold for the next one
			ok(2*mn, 3, 0, 58*mn),
			no(2*mn, 1, 0, 58*mn, 58*mn).by(1),
			ok(2*mn, -3, 0, 2*mn).by(1),
		},
	},
	{
		name:   "requests 0 deny always",
		limits: []bucket.Spec{perMinute(bucket.TokenBucket, 0, 0), perMinute(bucket.FixedWindow, 0, 0)},
		steps: []step{
			no(0, 1, 0, nvr, 0),
			no(0, 0, 0, nvr, 0),
			ok(0, -1, 0, 0),
			no(hr, 1, 0, nvr, 0),
			no(0, 1, 0, nvr, mn).by(1), // its window ends
			no(50*s, 1, 0, nvr, 10*s).by(1),
			ok(50*s, -1, 0, 10*s).by(1),
			no(60*s, 0, 0, nvr, mn).by(1),
		},
	},
	{
		name:   "a postpaid bucket goes into debt",
		limits: []bucket.Spec{{Algorithm: bucket.TokenBucket, Requests: 10, Period: mn, Burst: 10, Postpaid: bucket.PostpaidAlways}},
		steps: []step{
			ok(0, 0, 10, 0),
			ok(0, 25, 0, 150*s),
			no(0, 0, 0, 96*s, 150*s),  // 16 tokens until one is there
			no(0, 2, 0, 108*s, 162*s), // denied, and charged
			no(96*s, 0, 0, 12*s, 66*s),
			ok(108*s, 0, 1, 54*s),
		},
	},
	{
		name:   "a postpaid window is charged in full",
		limits: []bucket.Spec{{Algorithm: bucket.FixedWindow, Requests: 3, Period: mn, Postpaid: bucket.PostpaidAlways}},
		steps: []step{
			ok(50*s, 2, 1, 10*s),
			ok(50*s, 2, 0, 10*s),
			no(50*s, 0, 0, 10*s, 10*s),
			ok(50*s, -1, 0, 10*s),
			no(50*s, 0, 0, 10*s, 10*s),
			ok(50*s, -1, 1, 10*s),
			ok(60*s, 1, 2, 60*s),
		},
	},
	{
		name:   "a postpaid log remembers each charge for a period",
		limits: []bucket.Spec{{Algorithm: bucket.SlidingLog, Requests: 3, Period: mn, Postpaid: bucket.PostpaidAlways}},
		steps: []step{
			ok(0, 5, 0, 60*s),
			no(10*s, 1, 0, 50*s, 60*s),
			ok(60*s, 0, 2, 10*s),
		},
	},
	{
		name:   "a bucket of reported use is charged beyond its burst",
		limits: []bucket.Spec{reported(bucket.TokenBucket, 21, 21*mn)},
		steps: []step{
			ok(0, 0, 21, 0),
			ok(0, 10, 11, 600*s),
			ok(0, 10, 1, 1200*s),
			ok(0, 0, 1, 1200*s),
			no(0, 10, 0, 540*s, 1800*s), // denied, and charged
			no(539*s, 0, 0, s, 1261*s),
			ok(540*s, 0, 0, 1260*s), // at the limit, not beyond
			no(540*s, 1, 0, 60*s, 1320*s),
			ok(600*s, -1, 1, 1200*s),
			no(600*s, 22, 0, 1260*s, 2520*s), // more than there ever is
		},
	},
	{
		name:   "a window of reported use is over beyond its requests",
		limits: []bucket.Spec{reported(bucket.FixedWindow, 21, hr)},
		steps: []step{
			ok(0, 0, 21, 0),
			ok(0, 10, 11, hr),
			ok(0, 10, 1, hr),
			ok(0, 1, 0, hr),
			ok(0, 0, 0, hr), // at the limit
			no(mn, 1, 0, 59*mn, 59*mn),
			no(mn, 0, 0, 59*mn, 59*mn), // beyond it
			ok(mn, -1, 0, 59*mn),
			ok(mn, 0, 0, 59*mn),
			no(mn, 100, 0, 59*mn, 59*mn),
			ok(hr, 0, 21, 0),
		},
	},
	{
		name:   "a log of reported use remembers each charge",
		limits: []bucket.Spec{reported(bucket.SlidingLog, 3, 3*mn)},
		steps: []step{
			ok(0, 3, 0, 3*mn),
			ok(0, 0, 0, 3*mn),
			no(mn, 2, 0, 2*mn, 3*mn),
			no(2*mn, 0, 0, mn, 2*mn),
			ok(3*mn, 0, 1, mn),
			no(3*mn, 2, 0, mn, 3*mn),
		},
	},
	refundedLog(),
	fullPostpaidLog(),
	{
		name:   "a bucket gives back what was not refilled since",
		limits: []bucket.Spec{perMinute(bucket.TokenBucket, 10, 20)},
		steps: []step{
			ok(0, 5, 15, 30*s),
			ok(0, 5, 10, 60*s),
			back(12*s, 0),
			ok(12*s, 0, 15, 30*s),
			back(30*s, 1), // its 5 have come back by themselves
			ok(30*s, 0, 18, 12*s),
		},
	},
	{
		name:   "a fixed window gives back into itself only",
		limits: []bucket.Spec{perMinute(bucket.FixedWindow, 5, 0)},
		steps: []step{
			ok(50*s, 2, 3, 10*s),
			ok(55*s, 2, 1, 5*s),
			back(56*s, 0),
			ok(56*s, 0, 3, 4*s),
			ok(60*s, 3, 2, 60*s),
			back(61*s, 1),
			ok(61*s, 0, 2, 59*s),
			back(62*s, 4),
			ok(62*s, 0, 5, 0),
		},
	},
	{
		name:   "a log gives back the very stamp",
		limits: []bucket.Spec{perMinute(bucket.SlidingLog, 5, 0)},
		steps: []step{
			ok(0, 2, 3, 60*s),
			ok(10*s, 2, 1, 60*s),
			back(20*s, 1),
			ok(20*s, 0, 3, 40*s), // the first stamp's last 40s
			back(60*s, 0),
			ok(60*s, 0, 5, 0),
		},
	},
	{
		name:   "a sliding window gives back from the slot",
		limits: []bucket.Spec{{Algorithm: bucket.SlidingWindow, Requests: 9, Period: mn, SubWindows: 6}},
		steps: []step{
			ok(0, 2, 7, 60*s),
			ok(5*s, 3, 4, 60*s),
			ok(10*s, 4, 0, 60*s),
			back(20*s, 0),
			ok(20*s, 0, 2, 50*s),
			ok(65*s, 0, 5, 5*s),
			back(70*s, 2),
			ok(70*s, 0, 9, 0),
		},
	},
	{
		name:   "a bucket's clock does not run backwards",
		limits: []bucket.Spec{perMinute(bucket.TokenBucket, 10, 20)},
		steps: []step{
			ok(10*s, 20, 0, 120*s),
			no(5*s, 1, 0, 11*s, 125*s),
			no(16*s-us, 1, 0, us, 114*s+us),
			ok(16*s, 1, 0, 120*s),
		},
	},
	{
		name:   "a fixed window's clock does not run backwards",
		limits: []bucket.Spec{perMinute(bucket.FixedWindow, 3, 0)},
		steps: []step{
			ok(61*s, 2, 1, 59*s),
			ok(58*s, 1, 0, 62*s), // not into the window before
			no(58*s, 1, 0, 62*s, 62*s),
			ok(120*s, 1, 2, 60*s),
		},
	},
	{
		name:   "a log's clock does not run backwards",
		limits: []bucket.Spec{perMinute(bucket.SlidingLog, 3, 0)},
		steps: []step{
			ok(10*s, 2, 1, 60*s),
			ok(5*s, 1, 0, 65*s), // counts as of 10s
			no(69*s, 1, 0, 1*s, 1*s),
			ok(70*s, 3, 0, 60*s),
		},
	},
	{
		name:   "a bucket that was used while the clock was a day ahead",
		limits: []bucket.Spec{perMinute(bucket.TokenBucket, 10, 20)},
		steps: []step{
			ok(day, 20, 0, 120*s),
			no(3*s, 1, 0, 6*s, 120*s), // all 20 count as of now
			no(4*s, 0, 0, 5*s, 119*s), // once
			no(9*s-us, 1, 0, us, 114*s+us),
			ok(9*s, 1, 0, 120*s),
		},
	},
	{
		name:   "a fixed window that was used while the clock was a day ahead",
		limits: []bucket.Spec{perMinute(bucket.FixedWindow, 3, 0)},
		steps: []step{
			ok(day+10*s, 2, 1, 50*s),
			ok(80*s, 1, 0, 40*s),
			no(80*s, 1, 0, 40*s, 40*s),
			ok(120*s, 1, 2, 60*s),
		},
	},
	{
		name:   "a sliding window that was used while the clock was 40 seconds ahead",
		limits: []bucket.Spec{{Algorithm: bucket.SlidingWindow, Requests: 4, Period: mn, SubWindows: 6}},
		steps: []step{
			ok(0, 1, 3, 60*s),
			ok(45*s, 2, 1, 60*s),
			ok(5*s, 1, 0, 60*s), // with the 2, which are of now; the first is not
			no(59*s, 1, 0, 1*s, 6*s),
			ok(60*s, 1, 0, 60*s),
			no(60*s, 1, 0, 5*s, 60*s),
			ok(65*s, 3, 0, 60*s),
		},
	},
	{
		name:   "a log that was used while the clock was 45 seconds ahead",
		limits: []bucket.Spec{perMinute(bucket.SlidingLog, 3, 0)},
		steps: []step{
			ok(0, 1, 2, 60*s),
			ok(50*s, 2, 0, 60*s),
			no(5*s, 1, 0, 55*s, 60*s),
			ok(60*s, 1, 0, 60*s),
			no(60*s, 1, 0, 5*s, 60*s),
			ok(65*s, 2, 0, 60*s),
		},
	},
	{
		name:   "a bucket gives nothing back of what was taken ahead of the clock",
		limits: []bucket.Spec{perMinute(bucket.TokenBucket, 10, 20)},
		steps: []step{
			ok(day, 5, 15, 30*s),
			back(3*s, 0),
			ok(3*s, 0, 15, 30*s), // but it drains from now on
		},
	},
	{
		name:   "a log gives nothing back of what was taken ahead of the clock",
		limits: []bucket.Spec{perMinute(bucket.SlidingLog, 3, 0)},
		steps: []step{
			ok(day, 2, 1, 60*s),
			back(3*s, 0),
			ok(3*s, 0, 1, 60*s),
		},
	},
	{
		name: "a bucket's debt carries over to other numbers",
		// 6 seconds a token, then a minute a token.
		limits: []bucket.Spec{perMinute(bucket.TokenBucket, 10, 20), perMinute(bucket.TokenBucket, 1, 5)},
		steps: []step{
			ok(0, 2, 18, 12*s),
			ok(3*s, 1, 17, 15*s),       // owes 2.5
			ok(3*s, 0, 2, 15*s).by(1),  // whole tokens: 3 of 5
			ok(3*s, 2, 0, 300*s).by(1), // owes 5, at the new rate
			no(33*s, 1, 0, 30*s, 270*s).by(1),
			ok(63*s, 1, 0, 300*s).by(1),
			ok(63*s, 10, 5, 90*s).by(0),      // owes 5 and 10: whole tokens are whole tokens
			no(63*s, 1, 0, 90*s, 90*s).by(1), // 11 minutes by its own numbers, but the old ones forget it then
			no(153*s-us, 1, 0, us, us).by(1),
			ok(153*s, 1, 4, 60*s).by(1),
		},
	},
	{
		name: "a fixed window's count carries over into the new window of its last write",
		limits: []bucket.Spec{
			perMinute(bucket.FixedWindow, 5, 0),
			{Algorithm: bucket.FixedWindow, Requests: 5, Period: s},
			{Algorithm: bucket.FixedWindow, Requests: 10, Period: hr},
		},
		steps: []step{
			ok(10*s, 5, 0, 50*s),
			no(10*s, 1, 0, 1*s, 1*s).by(1),
			no(20*s, 1, 0, 40*s, 40*s).by(0),
			ok(60*s, 1, 4, 1*s).by(1),
			ok(60*s, 4, 0, 60*s).by(0),
			ok(70*s, 1, 4, 3530*s).by(2),
		},
	},
	{
		name: "a sliding window's slots are judged by the new period",
		limits: []bucket.Spec{
			perMinute(bucket.SlidingWindow, 3, 0),
			{Algorithm: bucket.SlidingWindow, Requests: 3, Period: 30 * s},
			{Algorithm: bucket.SlidingWindow, Requests: 3, Period: hr},
		},
		steps: []step{
			ok(0, 3, 0, 60*s),
			no(29*s, 1, 0, 1*s, 1*s).by(1),
			no(30*s, 1, 0, 30*s, 30*s).by(0), // nothing was written: they are still there
			ok(30*s, 1, 2, 30*s).by(1),
			no(40*s, 3, 2, 20*s, 20*s).by(2), // what lasts an hour now was written for 30s
			ok(60*s, 3, 0, hr).by(2),
		},
	},
	{
		name:   "a bucket's refund of nothing changes nothing",
		limits: []bucket.Spec{perMinute(bucket.TokenBucket, 10, 20), {Algorithm: bucket.TokenBucket, Requests: 10, Period: s, Burst: 20}},
		steps: []step{
			ok(0, 20, 0, 120*s),
			ok(6*s, -1, 20, 0).by(1), // by these numbers it was full after 2s
			ok(6*s, 0, 1, 114*s).by(0),
		},
	},
	{
		name:   "a log's refund of nothing changes nothing",
		limits: []bucket.Spec{perMinute(bucket.SlidingLog, 3, 0), {Algorithm: bucket.SlidingLog, Requests: 3, Period: s}},
		steps: []step{
			ok(0, 3, 0, 60*s),
			ok(30*s, -1, 3, 0).by(1),
			no(30*s, 1, 0, 30*s, 30*s).by(0),
		},
	},
	{
		name:   "what expired under the old numbers is gone",
		limits: []bucket.Spec{perMinute(bucket.SlidingLog, 3, 0), {Algorithm: bucket.SlidingLog, Requests: 3, Period: hr}},
		steps: []step{
			ok(0, 3, 0, 60*s),
			no(60*s-us, 1, 0, us, us).by(1),
			ok(60*s, 1, 2, hr).by(1),
		},
	},
}

// fullLog takes each request of a log a microsecond after the one before.
func fullLog(name string, spec bucket.Spec) scenario {
	sc := scenario{name: name, limits: []bucket.Spec{spec}}
	for i := range spec.Requests {
		sc.steps = append(sc.steps, ok(time.Duration(i)*us, 1, spec.Requests-1-i, 60*s))
	}
	return sc
}

// refundedLog refunds a whole stamp of a log that has as many as a log can have. The next
// hit gets a stamp of its own in its place.
func refundedLog() scenario {
	const maxStamps = bucket.MaxLogRequests
	sc := fullLog("a refund of a stamp makes room for another", perMinute(bucket.SlidingLog, maxStamps, 0))
	sc.steps = append(sc.steps,
		ok(maxStamps*us, -1, 1, 60*s-us),
		ok(maxStamps*us, 1, 0, 60*s),
		ok(60*s+(maxStamps-1)*us, 0, maxStamps-1, us),
	)
	return sc
}

// fullPostpaidLog charges a log once more than it has stamps. Its newest stamp takes in
// the last charge, and counts until that one is a period old.
func fullPostpaidLog() scenario {
	const maxStamps = bucket.MaxLogRequests
	spec := bucket.Spec{Algorithm: bucket.SlidingLog, Requests: maxStamps, Period: mn, Postpaid: bucket.PostpaidAlways}
	sc := fullLog("a postpaid log has no more stamps than a log has requests", spec)
	sc.steps = append(sc.steps,
		no(maxStamps*us, 1, 0, 60*s-(maxStamps-1)*us, 60*s), // denied, and charged
		ok(60*s+(maxStamps-2)*us, 0, maxStamps-2, 2*us),
		ok(60*s+(maxStamps-1)*us, 0, maxStamps-2, us), // the two count together
		ok(60*s+maxStamps*us, 0, maxStamps, 0),
	)
	return sc
}
