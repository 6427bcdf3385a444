package rules

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/reload"
)

// fingerprintOf returns the fingerprint of domains, which are sorted.
func fingerprintOf(domains []*Domain) string {
	var f fingerprinter
	for _, d := range domains {
		reload.Yield()
		f.text(d.Name)
		f.text(d.HashTag)
		if d.Algorithm != 0 {
			f.text(d.Algorithm.String())
		}
		if d.Unmatched != UnmatchedDefault {
			f.text("unmatched " + d.Unmatched.String())
		}
		f.digest(f.node(d.root))
	}
	sum := sha256.Sum256(f.buf)
	return hex.EncodeToString(sum[:8])
}

type digest = [sha256.Size]byte

// fingerprinter writes rules so that no two look alike: texts are preceded by their
// length, lists by their number of items. What is below a descriptor is written as its
// digest.
type fingerprinter struct{ buf []byte }

func (f *fingerprinter) number(n int64) { f.buf = binary.AppendVarint(f.buf, n) }

func (f *fingerprinter) text(s string) {
	f.number(int64(len(s)))
	f.buf = append(f.buf, s...)
}

func (f *fingerprinter) flag(b bool) {
	n := int64(0)
	if b {
		n = 1
	}
	f.number(n)
}

func (f *fingerprinter) digest(d digest) { f.buf = append(f.buf, d[:]...) }

// cut returns the digest of what was written since start, and removes it.
func (f *fingerprinter) cut(start int) digest {
	d := sha256.Sum256(f.buf[start:])
	f.buf = f.buf[:start]
	return d
}

// node returns the digest of a descriptor. One without a rule and without others below it
// counts too: requests that match it match nothing more general.
//
// Digests without an order are combined by XOR, which is much faster than sorting 100,000
// values. No two of them are equal.
func (f *fingerprinter) node(n *Node) digest {
	start := len(f.buf)
	f.text(n.entry.Key)
	f.text(n.entry.Value)
	if n.networks != nil {
		f.networks(n.networks)
	}
	if n.rule == nil && (n.SharesValues || n.CountsValues) { // else they are written with the rule
		f.flags(true, n.SharesValues, n.CountsValues) // at least 3, unlike what begins a rule
	}
	f.rule(n.rule)
	var exact, keys digest
	for _, below := range n.exact {
		d := f.node(below)
		subtle.XORBytes(exact[:], exact[:], d[:])
	}
	for i := range n.keys {
		d := f.key(&n.keys[i])
		subtle.XORBytes(keys[:], keys[:], d[:])
	}
	f.digest(exact)
	f.digest(keys)
	return f.cut(start)
}

// key returns the digest of the patterns of a key, in the order in which they
// are tried, and of the bare key.
func (f *fingerprinter) key(k *Key) digest {
	start := len(f.buf)
	var prefixes digest // without an order
	for _, n := range k.CIDRs() {
		d := f.node(n)
		subtle.XORBytes(prefixes[:], prefixes[:], d[:])
	}
	if len(k.CIDRs()) > 0 {
		f.digest(prefixes)
	}
	for _, n := range k.patterns.nodes {
		f.digest(f.node(n))
	}
	if k.bare != nil {
		f.digest(f.node(k.bare))
	}
	return f.cut(start)
}

// networks begins with a number that no rule begins with.
func (f *fingerprinter) networks(n *Networks) {
	f.text("networks")
	f.number(int64(n.Lengths.IPv4))
	f.number(int64(n.Lengths.IPv6))
	f.flag(n.IsShared)
	f.number(int64(len(n.CIDR)))
	for _, prefix := range n.sorted() {
		f.text(prefix.String())
	}
}

func (f *fingerprinter) rule(r *Rule) {
	f.flag(r != nil)
	if r == nil {
		return
	}
	f.flags(r.Unlimited, r.ShadowMode, r.QuotaMode, r.position.SharesValues, r.DetailedMetric, r.position.CountsValues, r.Metadata != nil, r.Replaces != nil, r.Plans != nil)
	f.text(r.Name)
	f.number(int64(len(r.Limits)))
	for _, l := range r.Limits {
		f.limit(&l.Spec)
	}
	if r.Metadata != nil {
		f.metadata(r.Metadata)
	}
	if r.Replaces != nil {
		f.replaces(r.Replaces)
	}
	if r.Plans != nil {
		f.plans(r.Plans)
	}
}

// plans writes plans as a set, since their order is irrelevant.
func (f *fingerprinter) plans(p *Plans) {
	f.text(p.Default.name())
	f.number(int64(len(p.all)))
	for _, name := range slices.Sorted(slices.Values(p.Names())) {
		f.text(name)
		f.rule(p.Plan(name))
	}
}

// flags writes booleans as the bits of a number.
func (f *fingerprinter) flags(flags ...bool) {
	n := int64(0)
	for i, set := range flags {
		if set {
			n |= 1 << i
		}
	}
	f.number(n)
}

// metadata writes a value of metadata, preceded by its kind.
func (f *fingerprinter) metadata(v any) {
	switch v := v.(type) {
	case nil:
		f.text("null")
	case bool:
		f.text("bool")
		f.flag(v)
	case int64:
		f.text("int")
		f.number(v)
	case float64:
		f.text("float")
		f.number(int64(math.Float64bits(v)))
	case string:
		f.text("text")
		f.text(v)
	case []any:
		f.text("list")
		f.number(int64(len(v)))
		for _, item := range v {
			f.metadata(item)
		}
	case map[string]any:
		f.text("mapping")
		f.number(int64(len(v)))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			f.text(key)
			f.metadata(v[key])
		}
	}
}

// replaces writes names as a set, since their order is irrelevant.
func (f *fingerprinter) replaces(limits [][]string) {
	f.number(int64(len(limits)))
	for _, names := range limits {
		names = slices.Compact(slices.Sorted(slices.Values(names)))
		f.number(int64(len(names)))
		for _, name := range names {
			f.text(name)
		}
	}
}

// limit writes all of a limit's numbers. Algorithms and failure modes are written by
// name, which does not depend on the order of their constants.
func (f *fingerprinter) limit(s *bucket.Spec) {
	f.text(s.Name)
	f.text(s.Algorithm.String())
	f.number(s.Requests)
	f.number(s.Period.Milliseconds())
	f.number(s.Burst)
	f.number(s.SubWindows)
	f.text(s.Postpaid.String())
	mode := ""
	if s.OnStoreFailure != bucket.FailureDefault {
		mode = s.OnStoreFailure.String()
	}
	if s.Unenforced != 0 { // older daemons, which do not know it, write nothing for it
		mode += fmt.Sprintf(" unenforced %d", s.Unenforced)
	}
	if s.Calendar != (bucket.Calendar{}) { // nor for this
		mode += " calendar " + s.Calendar.String()
	}
	if s.BlockFor != 0 { // nor for this
		mode += fmt.Sprintf(" block_for %d", s.BlockFor.Milliseconds())
	}
	if s.Lease != 0 { // nor for this
		mode += " lease " + s.Lease.String()
	}
	f.text(mode)
}
