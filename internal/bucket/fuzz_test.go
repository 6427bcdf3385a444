package bucket_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
)

// In each of these the fuzzer's bytes choose the accidents of a trace, which
// the steps and the oracle must then decide alike.

func FuzzTokenBucket(f *testing.F) {
	fuzzTraces(f, bucket.TokenBucket, bucket.GCRA, bucket.LeakyBucket)
}
func FuzzFixedWindow(f *testing.F)   { fuzzTraces(f, bucket.FixedWindow) }
func FuzzSlidingWindow(f *testing.F) { fuzzTraces(f, bucket.SlidingWindow) }
func FuzzSlidingLog(f *testing.F)    { fuzzTraces(f, bucket.SlidingLog) }
func FuzzConcurrency(f *testing.F)   { fuzzTraces(f, bucket.Concurrency, bucket.FixedWindow) }

// FuzzReservations also names takes and settles them.
func FuzzReservations(f *testing.F) {
	fuzz(f, buckettest.Options{Domain: "d", Algorithms: bucket.Algorithms(), Reserves: true})
}

func fuzzTraces(f *testing.F, algorithms ...bucket.Algorithm) {
	fuzz(f, buckettest.Options{Domain: "d", Algorithms: algorithms})
}

func fuzz(f *testing.F, opt buckettest.Options) {
	for _, step := range []byte{1, 3, 7, 29, 101} {
		seed := make([]byte, 200)
		for i := range seed {
			seed[i] = byte(i) * step
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, accidents []byte) {
		checkTrace(t, buckettest.Bytes(accidents), opt)
	})
}

// FuzzKey makes two descriptors and limits out of the bytes: their keys are
// equal only if they are, and safe to put into a Redis key.
func FuzzKey(f *testing.F) {
	parts := func(parts ...string) (b []byte) {
		for _, p := range parts {
			b = append(binary.LittleEndian.AppendUint16(b, uint16(len(p))), p...)
		}
		return b
	}
	long := strings.Repeat("x", 300)
	f.Add(parts("d", "k", "v"), "a", uint8(0), parts("d", "k", "v"), "b", uint8(0))
	f.Add(parts("d", "a", "b|c=d"), "", uint8(1), parts("d", "a", "b", "c", "d"), "", uint8(1))
	f.Add(parts("d", "{a}", "%7B"), "#x", uint8(2), parts("d", "%7Ba%7D", "{"), ":x", uint8(2))
	f.Add(parts("d", "k", "v#gcra"), "", uint8(0), parts("d", "k", "v"), "", uint8(1))
	f.Add(parts("d", "k", "v"), long, uint8(0), parts("d", "k", "v"), long+"x", uint8(0))
	f.Add(parts("d", long, long), "n", uint8(3), parts("d", long, "y"+long), "n", uint8(3))
	f.Add(parts("d", "k", "é\x00\xff"), "n\n", uint8(4), parts("d"), "{}", uint8(5))
	f.Add(parts("d", "k", "v"), "", uint8(6), parts("d", "k", "v"), "", uint8(0))
	f.Add(parts("d", "k", "v"), "", uint8(6), parts("d", "k", "v"), "#1", uint8(0))
	f.Add(parts("d", "k", "v"), "n", uint8(6), parts("d", "k", "v"), "n", uint8(12))
	f.Add(parts("d", long), "n", uint8(6), parts("d", long), "n", uint8(12))
	f.Fuzz(func(t *testing.T, d1 []byte, name1 string, a1 uint8, d2 []byte, name2 string, a2 uint8) {
		one, two := newNamed(t, d1, name1, a1), newNamed(t, d2, name2, a2)
		one.check(t)
		two.check(t)
		sameSubject := slices.Equal(one.shared, two.shared) && one.domain == two.domain && slices.Equal(one.entries, two.entries)
		if got := bytes.Equal(one.subject, two.subject); got != sameSubject {
			t.Errorf("%q and %q: equal subjects: %v, want %v", one.entries, two.entries, got, sameSubject)
		}
		same := sameSubject && one.limit.Name == two.limit.Name && one.limit.Algorithm == two.limit.Algorithm && one.period == two.period
		if got := bytes.Equal(one.key, two.key); got != same {
			t.Errorf("%q and %q: equal keys: %v, want %v", one.key, two.key, got, same)
		}
	})
}

// named is a limit on a descriptor, with its key.
type named struct {
	limit        *bucket.Limit
	period       time.Duration // in the key; 0 if it is not there
	domain       string
	entries      []bucket.Entry
	shared       []string // patterns that descriptors share
	subject, key []byte
}

// newNamed reads a domain, and keys and values in turn. Each is a length of two
// bytes and that many bytes of anything, or what is there.
func newNamed(t *testing.T, b []byte, name string, a uint8) named {
	next := func() string {
		n := min(2, len(b))
		var length [2]byte
		copy(length[:], b[:n])
		b = b[n:]
		n = min(int(binary.LittleEndian.Uint16(length[:]))%8192, len(b))
		part := string(b[:n])
		b = b[n:]
		return part
	}
	var x named
	x.domain = next()
	for len(b) > 0 {
		x.entries = append(x.entries, bucket.Entry{Key: next(), Value: next()})
	}
	algorithms := buckettest.Rates()
	s := bucket.Spec{Name: name, Algorithm: algorithms[int(a)%len(algorithms)], Requests: 1, Period: time.Second}
	x.limit = buckettest.NewLimit(t, s)
	// What is left of a chooses whether the first and the last value are shared, and a period
	// for the key, or none.
	rest := int(a) / len(algorithms)
	if n := rest / 2; n > 0 {
		s.Period = time.Duration(n) * time.Millisecond
		x.period, x.limit = s.Period, mustPeriodLimit(t, s)
	}
	x.subject = []byte("before")
	if rest%2 == 1 && len(x.entries) > 0 {
		x.shared = make([]string, len(x.entries))
		for _, i := range []int{0, len(x.entries) - 1} {
			x.shared[i] = "*" + x.entries[i].Value
		}
		x.subject = bucket.AppendSharedSubject(x.subject, x.domain, x.entries, x.shared)
	} else {
		x.subject = bucket.AppendSubject(x.subject, x.domain, x.entries)
	}
	x.key = x.limit.AppendKey([]byte("before"), bytes.TrimPrefix(x.subject, []byte("before")))
	return x
}

func (x named) check(t *testing.T) {
	for _, text := range [][]byte{x.subject, x.key} {
		if !bytes.HasPrefix(text, []byte("before")) {
			t.Errorf("%q: what was there before is gone", text)
		}
		for _, c := range text {
			if c < ' ' || c == 0x7f || c == '{' || c == '}' {
				t.Errorf("%q holds a %q", text, c)
			}
		}
	}
	if n := len(x.key) - len("before"); n > bucket.MaxKey {
		t.Errorf("%q has %d bytes", x.key, n)
	}
}
