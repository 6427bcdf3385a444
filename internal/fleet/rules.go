package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// rulesSettle is how long rules may differ while a reload goes round.
	rulesSettle = 10 * time.Second
	// rulesWarnEvery is how often a difference that stays is told.
	rulesWarnEvery = 10 * time.Minute
)

// RulesDiffer says which daemons have which rules where they are not the same,
// and "" where they are. Daemons without a fingerprint do not count.
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

// ShortRules is enough of a fingerprint to tell it from others.
func ShortRules(fingerprint string) string { return fingerprint[:min(len(fingerprint), 12)] }

// fewOf joins texts, and counts those that would be too many to read.
func fewOf(texts []string) string {
	const most = 5
	if len(texts) <= most {
		return strings.Join(texts, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(texts[:most], ", "), len(texts)-most)
}

func addressesByRules(daemons []Daemon) map[string][]string {
	byRules := make(map[string][]string)
	for _, m := range daemons {
		if m.Rules != "" {
			byRules[m.Rules] = append(byRules[m.Rules], m.Address)
		}
	}
	return byRules
}

// rulesWatch knows when a difference of rules is worth a warning.
type rulesWatch struct {
	found    string    // the fingerprints that differ, or ""
	since    time.Time // found is so
	warned   string    // the fingerprints of the last warning
	warnedAt time.Time
}

// due reports whether to warn now that these are the daemons.
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
