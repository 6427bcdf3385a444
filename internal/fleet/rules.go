package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// rulesSettle is how long rules may differ while all daemons reload.
	rulesSettle = 10 * time.Second
	// rulesWarnEvery is how often a persistent difference is logged.
	rulesWarnEvery = 10 * time.Minute
)

// RulesDiffer returns which daemons have which rules, or "" if all have the same.
// Daemons without a fingerprint do not count.
func RulesDiffer(daemons []Daemon) string {
	byRules := addressesByRules(daemons)
	if len(byRules) < 2 {
		return ""
	}
	var parts []string
	for _, rules := range slices.Sorted(maps.Keys(byRules)) {
		parts = append(parts, fmt.Sprintf("%s at %s", ShortRules(rules), fewOf(byRules[rules])))
	}
	return fewOf(parts)
}

// ShortRules returns enough of a fingerprint to distinguish it from others: its beginning,
// and what follows the sign that marks the time zones of rules.
func ShortRules(fingerprint string) string {
	rules, zones, found := strings.Cut(fingerprint, inZones)
	rules = rules[:min(len(rules), 12)]
	if !found {
		return rules
	}
	return rules + inZones + zones
}

// inZones is before the version of time zones in a fingerprint.
const inZones = "+"

// InZones returns the fingerprint of rules whose windows are computed by time zones of a
// version: daemons with others do not have the same rules.
func InZones(fingerprint, version string) string { return fingerprint + inZones + version }

// fewOf joins the first five texts, and counts the others.
func fewOf(texts []string) string {
	const maxTexts = 5
	if len(texts) <= maxTexts {
		return strings.Join(texts, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(texts[:maxTexts], ", "), len(texts)-maxTexts)
}

func addressesByRules(daemons []Daemon) map[string][]string {
	byRules := make(map[string][]string)
	for _, d := range daemons {
		if d.Rules != "" {
			byRules[d.Rules] = append(byRules[d.Rules], d.Address)
		}
	}
	return byRules
}

// rulesWatch knows when a difference of rules is worth a warning.
type rulesWatch struct {
	found    string    // the fingerprints that differ, or ""
	since    time.Time // when found became that
	warned   string    // the fingerprints of the last warning
	warnedAt time.Time
}

// due reports whether to warn about the rules of these daemons.
func (w *rulesWatch) due(now time.Time, daemons []Daemon) bool {
	fingerprints := slices.Sorted(maps.Keys(addressesByRules(daemons)))
	found := ""
	if len(fingerprints) > 1 {
		found = strings.Join(fingerprints, " ")
	}
	if found != w.found {
		w.found, w.since = found, now
	}
	if found == "" || now.Sub(w.since) < rulesSettle {
		return false
	}
	if found == w.warned && now.Sub(w.warnedAt) < rulesWarnEvery {
		return false
	}
	w.warned, w.warnedAt = found, now
	return true
}
