package diff

import (
	"cmp"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
)

// brief describes what a rule allows in a few words. The rule may be nil.
func brief(r *rules.Rule) string {
	if r == nil {
		return "no limit"
	}
	if r.Plans != nil {
		return "by plan, " + brief(r.Plans.Default) + " for subjects without an assigned plan"
	}
	if r.Unlimited {
		return "unlimited"
	}
	texts := make([]string, len(r.Limits))
	for i, l := range r.Limits {
		texts[i] = named(l.Name, words.Limit(l))
	}
	text := strings.Join(texts, " and ")
	if r.ShadowMode {
		text += " (shadow)"
	}
	return text
}

func named(name, text string) string {
	if name == "" {
		return text
	}
	return yamlfile.Printable(name) + ": " + text
}

// rule reports the differences between two rules of the same path.
func (d *differ) rule(path string, before, after *rules.Rule) {
	switch {
	case before.Plans != nil && after.Plans != nil:
		d.plans(path, before.Plans, after.Plans)
		return
	case before.Plans != nil || after.Plans != nil:
		d.add(path, Changed, "%s; until now %s", brief(after), brief(before))
		return
	case before.Unlimited && after.Unlimited:
	case before.Unlimited:
		d.add(path, Stricter, "%s; until now unlimited", brief(after))
	case after.Unlimited:
		d.add(path, Looser, "unlimited; until now %s", brief(before))
	default:
		d.limits(path, before, after)
	}
	d.flags(path, before, after)
}

// plans reports the differences between the plans of two rules of the same path.
func (d *differ) plans(path string, before, after *rules.Plans) {
	for _, plan := range after.All() {
		if old := before.Plan(plan.Plan); old != nil {
			d.rule(path+plan.PlanNote(), old, plan)
		} else {
			d.add(path+plan.PlanNote(), Changed, "a new plan, %s", brief(plan))
		}
	}
	for _, plan := range before.All() {
		if after.Plan(plan.Plan) == nil {
			d.add(path+plan.PlanNote(), Changed, "the plan is gone: subjects to whom it is assigned get %s; until now %s", brief(after.Default), brief(plan))
		}
	}
	if was, is := defaultName(before), defaultName(after); was != is {
		d.add(path, Changed, "subjects without an assigned plan get the plan %s, %s; until now %s, %s",
			orNone(is), brief(after.Default), orNone(was), brief(before.Default))
	}
}

func defaultName(p *rules.Plans) string {
	if p.Default == nil {
		return ""
	}
	return p.Default.Plan
}

func (d *differ) limits(path string, before, after *rules.Rule) {
	if len(before.Limits) == 1 && len(after.Limits) == 1 {
		d.limit(path, before.Limits[0], after.Limits[0])
		return
	}
	find := func(limits []*bucket.Limit, name string) *bucket.Limit {
		if i := slices.IndexFunc(limits, func(l *bucket.Limit) bool { return l.Name == name }); i >= 0 {
			return limits[i]
		}
		return nil
	}
	for _, l := range after.Limits {
		if old := find(before.Limits, l.Name); old != nil {
			d.limit(path, old, l)
		} else {
			d.add(path, Stricter, "one more limit, %s", named(l.Name, words.Limit(l)))
		}
	}
	for _, l := range before.Limits {
		if find(after.Limits, l.Name) == nil {
			d.add(path, Looser, "one limit less: until now %s", named(l.Name, words.Limit(l)))
		}
	}
}

// limit reports the differences between a limit and the one that replaced it.
func (d *differ) limit(path string, before, after *bucket.Limit) {
	if before.Algorithm != after.Algorithm {
		d.add(path, Reset, "%s; until now %s: counts start from zero", named(after.Name, after.Algorithm.String()), before.Algorithm)
	}
	if before.Name != after.Name {
		d.add(path, Reset, "the limit's name is %s instead of %s: counts start from zero", orNone(after.Name), orNone(before.Name))
	}
	d.numbers(path, before, after)
	if before.Postpaid != after.Postpaid {
		d.add(path, Changed, "%s instead of %s", named(after.Name, "postpaid "+after.Postpaid.String()), before.Postpaid)
	}
	if before.BlockFor != after.BlockFor {
		d.add(path, ifElse(after.BlockFor > before.BlockFor, Stricter, Looser), "%s instead of %s", named(after.Name, blockText(after)), blockText(before))
	}
	if before.Lease != after.Lease {
		kind := Changed
		if after.Algorithm != bucket.FixedWindow {
			kind = ifElse(before.Lease > after.Lease, Looser, Stricter)
		}
		d.add(path, kind, "%s; until now %s", named(after.Name, words.Lease(after)), words.Lease(before))
	}
	if before.Unenforced != after.Unenforced {
		kind := Looser
		if before.Unenforced > after.Unenforced {
			kind = Stricter
		}
		d.add(path, kind, "%s instead of %s", named(after.Name, "enforced for "+words.EnforcedShare(after)+" of the subjects"), words.EnforcedShare(before))
	}
	if before.OnStoreFailure != after.OnStoreFailure {
		d.add(path, Changed, "%s instead of %s", named(after.Name, "on store failure: "+modeText(after.OnStoreFailure)), modeText(before.OnStoreFailure))
	}
}

func blockText(l *bucket.Limit) string {
	if l.BlockFor == 0 {
		return "no block_for"
	}
	return "block_for " + timespan.Format(l.BlockFor)
}

func modeText(m bucket.FailureMode) string {
	if m == bucket.FailureDefault {
		return "as failure.mode says"
	}
	return m.String()
}

// numbers reports by how much a limit is stricter or looser than before: in what it
// allows over time, and in what it allows at once.
func (d *differ) numbers(path string, before, after *bucket.Limit) {
	if before.Algorithm.HasHolders() || after.Algorithm.HasHolders() {
		d.slots(path, before, after)
		return
	}
	if before.Calendar != after.Calendar && before.Requests > 0 && after.Requests > 0 {
		d.calendars(path, before, after)
		return
	}
	rate := ratio(after.Requests, int64(before.Period), before.Requests, int64(after.Period))
	atOnce := ratio(cmp.Or(after.Burst, after.Capacity), 1, cmp.Or(before.Burst, before.Capacity), 1)
	text := fmt.Sprintf("%s; until now %s", named(after.Name, words.Numbers(after)), words.Numbers(before))
	one := big.NewRat(1, 1)
	note := ""
	if before.Algorithm == bucket.FixedWindow && after.Algorithm == before.Algorithm && before.Period != after.Period {
		note = "; " + countsInOneWindow
	}
	add := func(kind Effect, format string, args ...any) {
		d.add(path, kind, "%s%s", fmt.Sprintf(format, args...), note)
	}
	switch {
	case before.Requests == 0 && after.Requests == 0:
	case before.Requests == 0:
		add(Looser, "%s", text)
	case after.Requests == 0:
		add(Stricter, "%s", text)
	case rate.Cmp(one) == 0 && atOnce.Cmp(one) == 0:
		if before.SubWindows != after.SubWindows {
			add(Changed, "%s", text)
		}
	case rate.Cmp(atOnce) == 0:
		add(ifElse(rate.Cmp(one) > 0, Looser, Stricter), "%s: %s", text, more(rate))
	case rate.Cmp(one) >= 0 && atOnce.Cmp(one) >= 0:
		add(Looser, "%s: over time %s, at once %s", text, more(rate), more(atOnce))
	case rate.Cmp(one) <= 0 && atOnce.Cmp(one) <= 0:
		add(Stricter, "%s: over time %s, at once %s", text, more(rate), more(atOnce))
	default:
		add(Changed, "%s: over time %s, at once %s", text, more(rate), more(atOnce))
	}
}

// slots is numbers where one of the limits counts requests in flight.
func (d *differ) slots(path string, before, after *bucket.Limit) {
	text := fmt.Sprintf("%s; until now %s", named(after.Name, words.Numbers(after)), words.Numbers(before))
	switch {
	case after.Algorithm != before.Algorithm:
		d.add(path, Changed, "%s", text)
	case after.Requests > before.Requests:
		d.add(path, Looser, "%s", text)
	case after.Requests < before.Requests:
		d.add(path, Stricter, "%s", text)
	case after.Period != before.Period:
		d.add(path, Changed, "%s", text)
	}
}

// countsInOneWindow says what becomes of counts where the windows of a limit change.
const countsInOneWindow = "what was counted counts in the new window that contains its last use, and in no other"

// calendars reports a difference of windows. Where it is only in where they begin, no
// number says what that is worth.
func (d *differ) calendars(path string, before, after *bucket.Limit) {
	note := ""
	if before.Calendar.Unit == after.Calendar.Unit {
		note = "; a start that moved begins a window now: if it lies after the last use, the whole limit is there again"
	}
	d.add(path, Changed, "%s; until now %s: %s%s", named(after.Name, words.Numbers(after)), words.Numbers(before), countsInOneWindow, note)
}

// ratio returns a*b / (c*d), or 0 if that is undefined.
func ratio(a, b, c, d int64) *big.Rat {
	if c == 0 || d == 0 {
		return new(big.Rat)
	}
	up := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
	return new(big.Rat).SetFrac(up, new(big.Int).Mul(big.NewInt(c), big.NewInt(d)))
}

// more says how much more or less a ratio is than 1.
func more(r *big.Rat) string {
	percent, _ := new(big.Rat).Sub(r, big.NewRat(1, 1)).Float64()
	percent *= 100
	times, _ := r.Float64()
	switch {
	case percent == 0:
		return "the same"
	case times >= 2:
		return fmt.Sprintf("%.4g times as much", times)
	case percent > 0:
		return fmt.Sprintf("%.3g %% more", percent)
	case percent < -99.9:
		return fmt.Sprintf("a %.4gth", 1/times)
	}
	return fmt.Sprintf("%.3g %% less", -percent)
}

// flags reports which flags of a rule differ.
func (d *differ) flags(path string, before, after *rules.Rule) {
	for _, f := range []struct {
		before, after bool
		on, off       Effect
		set, unset    string
	}{
		{before.ShadowMode, after.ShadowMode, Looser, Stricter, "shadow_mode: its limits do not deny any more", "no shadow_mode any more: its limits deny"},
		{before.QuotaMode, after.QuotaMode, Looser, Stricter, "quota_mode: it denies only where all quotas of a request are exhausted", "no quota_mode any more: its limits deny by themselves"},
		{before.DetailedMetric, after.DetailedMetric, Changed, Changed, "metrics by all values", "no metrics by all values any more"},
	} {
		switch {
		case !f.before && f.after:
			d.add(path, f.on, "%s", f.set)
		case f.before && !f.after:
			d.add(path, f.off, "%s", f.unset)
		}
	}
	if !slices.Equal(before.Shared, after.Shared) {
		text := "no share_threshold any more: each value has a count of its own, which starts from zero"
		if patterns := sharedPatterns(after); patterns != "" {
			text = fmt.Sprintf("share_threshold: all values of %s have one count, which starts from zero", patterns)
		}
		d.add(path, Reset, "%s", text)
	}
	if !slices.Equal(before.CountedEntries, after.CountedEntries) {
		text := "no metrics by value any more"
		if after.CountedEntries != nil {
			text = "metrics by the values of " + yamlfile.Commas(countedKeys(after))
		}
		d.add(path, Changed, "%s", text)
	}
	if !reflect.DeepEqual(before.Metadata, after.Metadata) {
		d.add(path, Changed, "other metadata for callers")
	}
	if !reflect.DeepEqual(before.Replaces, after.Replaces) && len(before.Limits) == len(after.Limits) {
		d.add(path, Changed, "it replaces %s; until now %s", replacedBy(after), replacedBy(before))
	}
}

// sharedPatterns returns the patterns of a rule whose values share a counter, "" if there
// are none.
func sharedPatterns(r *rules.Rule) string {
	var patterns []string
	for _, pattern := range r.Shared {
		if pattern != "" {
			patterns = append(patterns, yamlfile.Printable(pattern))
		}
	}
	return yamlfile.Commas(patterns)
}

// countedKeys returns the keys by whose values a rule counts.
func countedKeys(r *rules.Rule) []string {
	entries := r.Entries()
	keys := make([]string, len(r.CountedEntries))
	for i, at := range r.CountedEntries {
		keys[i] = yamlfile.Printable(entries[at].Key)
	}
	return keys
}

func replacedBy(r *rules.Rule) string {
	var names []string
	for _, list := range r.Replaces {
		names = append(names, yamlfile.Printables(list)...)
	}
	if len(names) == 0 {
		return "no other limit"
	}
	return yamlfile.Commas(names)
}
