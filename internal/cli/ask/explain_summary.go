package ask

import (
	"fmt"
	"math"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// summaryText says in a sentence what a request of such a cost would get.
func summaryText(m *adminv1.ExplainResponse, cost int64) string {
	switch {
	case !m.GetAllowed():
		return "It would be denied: " + denialText(m, cost) + "."
	case m.GetDomainKnown():
		return "It would pass" + passText(m.GetDescriptors()) + "."
	case m.GetNearDomain() != "":
		return "It would pass: no limits have its domain; did you mean " + spelling.ShellWord(m.GetNearDomain()) + "?"
	}
	return "It would pass: no limits have its domain."
}

// denialText says why a request is denied, and when it passes.
func denialText(m *adminv1.ExplainResponse, cost int64) string {
	d := m.GetDescriptors()[m.GetDeniedByDescriptor()]
	entries := entriesText(d.GetEntries())
	if m.DeniedByLimit == nil && d.GetVerdict() == adminv1.Verdict_VERDICT_UNMATCHED_DENIED {
		return "no rule is for " + entries + ", and its domain denies what has none"
	}
	if m.DeniedByLimit == nil {
		if i := slices.IndexFunc(d.GetAssignments(), (*adminv1.ExplainedAssignment).GetApplies); i >= 0 {
			entries = entriesText(d.GetAssignments()[i].GetAssignment().GetEntries())
		}
		if m.RetryAfter == nil {
			return entries + " is blocked"
		}
		return entries + " is blocked for another " + timeText(m.GetRetryAfter())
	}
	l := d.GetLimits()[m.GetDeniedByLimit()]
	text := limitText(d, l)
	switch {
	case m.GetRetryUnknown():
		return text + " has none left, and would allow it once a slot is released" + lapseText(l)
	case l.GetPausedUntil() != nil && m.RetryAfter != nil:
		return text + " has paused it for another " + timeText(m.GetRetryAfter())
	case m.RetryAfter != nil:
		return fmt.Sprintf("%s has %s left, and would allow it in %s", text, words.Thousands(int64(l.GetRemaining())), timeText(m.GetRetryAfter()))
	case l.GetLimit().GetRequests() == 0:
		return text + " never allows anything"
	}
	return fmt.Sprintf("%s never allows a cost of %s, more than its capacity of %s", text, words.Thousands(cost), words.Thousands(int64(l.GetLimit().GetCapacity())))
}

// passText says why a request passes, or how near it is to a limit.
func passText(descriptors []*adminv1.ExplainedDescriptor) string {
	text, left := ": no rule is for it", uint64(math.MaxUint64)
	for _, d := range descriptors {
		switch d.GetVerdict() {
		case adminv1.Verdict_VERDICT_SHADOWED:
			return ", though " + entriesText(d.GetEntries()) + " would be denied: that is in shadow mode"
		case adminv1.Verdict_VERDICT_UNMATCHED_ALLOWED:
			continue
		}
		if left == math.MaxUint64 {
			text = ": no limit is in force for it"
		}
		for _, l := range d.GetLimits() {
			if !l.GetShadow() && l.GetRemaining() < left {
				left = l.GetRemaining()
				text = fmt.Sprintf(": of its limits the nearest is %s, with %s left", limitText(d, l), words.Thousands(int64(left)))
			}
		}
	}
	return text
}

// limitText names a limit of a descriptor within a sentence.
func limitText(d *adminv1.ExplainedDescriptor, l *adminv1.ExplainedLimit) string {
	name := "the limit without a name"
	if n := l.GetLimit().GetName(); n != "" {
		name = "the limit " + yamlfile.Printable(n)
	}
	return fmt.Sprintf("%s of %s (%s)", name, assigntext.EntriesWord(d.GetEntries()), l.GetLimit().GetText())
}
