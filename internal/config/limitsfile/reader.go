package limitsfile

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/period"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// The levels of a limits file. A new key is added to its level here, and read where the
// level is read; make schemas publishes it for editors.
var (
	domainLevel = &yamlfile.Level{Is: "a domain", Fields: []yamlfile.Field{
		{Name: "domain", Theirs: true, Kind: nameKind, IsNeeded: true},
		{Name: "algorithm", Kind: yamlfile.Words(yamlfile.NamesOf(rateAlgorithms()))},
		{Name: "hash_tag", Kind: nameKind},
		{Name: "unmatched", Kind: yamlfile.Words(yamlfile.NamesOf(unmatched))},
		{Name: "descriptors", Theirs: true, Kind: yamlfile.ListOf{Of: yamlfile.Ref("descriptor")}},
	}, Theirs: true}
	descriptorLevel = &yamlfile.Level{Is: "a descriptor", Fields: []yamlfile.Field{
		{Name: "key", Theirs: true, Kind: nameKind, IsNeeded: true},
		{Name: "value", Theirs: true, Kind: yamlfile.Text{}},
		{Name: "cidr", Kind: yamlfile.ListOf{Of: yamlfile.Text{Pattern: `^[0-9A-Fa-f:.]+/[0-9]+$`}, Least: 1}},
		{Name: "network", Kind: yamlfile.Ref("network")},
		{Name: "rate_limit", Theirs: true, Kind: yamlfile.Ref("limit")},
		{Name: "rate_limits", Kind: limitsKind},
		{Name: "plans", Kind: yamlfile.MapOf{Longest: maxPlanName, Of: yamlfile.Either{yamlfile.Ref("limit"), limitsKind}}},
		{Name: "plan", Kind: yamlfile.Name{Longest: maxPlanName}},
		{Name: "on_store_failure", Kind: yamlfile.Words(yamlfile.NamesOf(bucket.FailureModes()))},
		{Name: "shadow_mode", Theirs: true, Kind: yamlfile.Flag{}},
		{Name: "quota_mode", Theirs: true, Kind: yamlfile.Flag{}},
		{Name: "share_threshold", Theirs: true, Kind: yamlfile.Flag{}},
		{Name: "metadata", Theirs: true, Kind: yamlfile.Any{}},
		{Name: "detailed_metric", Theirs: true, Kind: yamlfile.Flag{}},
		{Name: "value_to_metric", Theirs: true, Kind: yamlfile.Flag{}},
		{Name: "descriptors", Theirs: true, Kind: yamlfile.ListOf{Of: yamlfile.Ref("descriptor")}},
	}, Theirs: true}
	networkLevel = &yamlfile.Level{Is: "a network", Fields: []yamlfile.Field{{Name: "ipv4", Kind: ipv4Lengths}, {Name: "ipv6", Kind: ipv6Lengths}}}
	limitLevel   = &yamlfile.Level{Is: "a rate_limit", Fields: append([]yamlfile.Field{
		{Name: "unlimited", Theirs: true, Kind: yamlfile.Flag{}},
		{Name: "name", Theirs: true, Kind: yamlfile.Name{Longest: maxLimitName, MayBeEmpty: true}},
	}, limitFields...), Theirs: true}
	limitItemLevel = &yamlfile.Level{Is: "an item of rate_limits", Fields: slices.Concat([]yamlfile.Field{
		{Name: "name", Theirs: true, Kind: limitNameKind, IsNeeded: true},
	}, limitFields, []yamlfile.Field{{Name: "shadow_mode", Kind: yamlfile.Flag{}}})}
	replacesLevel = &yamlfile.Level{Is: "an item of replaces", Fields: []yamlfile.Field{
		{Name: "name", Theirs: true, Kind: limitNameKind, IsNeeded: true},
	}, Theirs: true}

	// limitFields are those of a limit beside its name.
	limitFields = []yamlfile.Field{
		{Name: "algorithm", Kind: yamlfile.Words(yamlfile.NamesOf(bucket.Algorithms()))},
		{Name: "requests", Kind: requestsRange},
		{Name: "period", Kind: yamlfile.Text{Pattern: period.Pattern}},
		{Name: "calendar", Kind: yamlfile.Words(yamlfile.NamesOf(bucket.CalendarUnits()))},
		{Name: "time_zone", Kind: yamlfile.Text{}},
		{Name: "starts", Kind: yamlfile.Text{}},
		{Name: "requests_per_unit", Theirs: true, Kind: requestsRange},
		{Name: "unit", Theirs: true, Kind: yamlfile.Words(period.Units())},
		{Name: "burst", Kind: burstRange},
		{Name: "sub_windows", Kind: subWindowsRange},
		{Name: "hold", Kind: yamlfile.Text{Pattern: period.Pattern}},
		{Name: "postpaid", Kind: yamlfile.Flag{Or: bucket.PostpaidAuto.String()}},
		{Name: "block_for", Kind: yamlfile.Text{Pattern: period.Pattern}},
		{Name: "lease", Kind: yamlfile.Text{Pattern: period.Pattern}},
		{Name: "replaces", Theirs: true, Kind: yamlfile.ListOf{Of: yamlfile.Ref("replaced")}},
		{Name: "enforce", Kind: yamlfile.Text{Pattern: `^(100(\.00?)?|0?[0-9]{1,2}(\.[0-9]{1,2})?)%$`}},
	}

	nameKind        = yamlfile.Name{Longest: yamlfile.MaxName}
	limitNameKind   = yamlfile.Name{Longest: maxLimitName}
	limitsKind      = yamlfile.ListOf{Of: yamlfile.Ref("item"), Least: 1}
	unmatched       = []rules.Unmatched{rules.AllowUnmatched, rules.DenyUnmatched}
	requestsRange   = yamlfile.Range{Min: 0, Max: bucket.MaxRequests}
	burstRange      = yamlfile.Range{Min: 1, Max: bucket.MaxRequests}
	subWindowsRange = yamlfile.Range{Min: 1, Max: bucket.MaxSubWindows}
	ipv4Lengths     = yamlfile.Range{Min: 1, Max: 32}
	ipv6Lengths     = yamlfile.Range{Min: 1, Max: 128}
)

const (
	// maxNesting is how deep descriptors may nest.
	maxNesting = 256
	// maxLimitName bounds the names of limits in bytes.
	maxLimitName = 64
)

// shared is the state that the parsers of one load share. It is for one goroutine.
type shared struct {
	// lenient and merges come from the options.
	lenient, merges bool
	// room is for the counts of the rules.
	room *tally.Room
	// limits holds one Limit for all places with the same numbers.
	limits map[bucket.Spec]*bucket.Limit
	// copies holds one copy of equal parts of rules.
	copies *rules.Copies
	// strings holds one copy of each key.
	strings map[string]string
	// outermost holds the positions of the outermost descriptors of domains, if domains
	// are merged.
	outermost map[*rules.Node]outermost
}

// outermost is the position of one of a domain's outermost descriptors.
type outermost struct {
	reader *reader
	yamlfile.Position
}

// newShared returns the state that the parsers of a load share; lenient and merges come
// from its options.
func newShared(lenient, merges bool) *shared {
	return &shared{
		lenient:   lenient,
		merges:    merges,
		room:      tally.NewRoom(),
		limits:    make(map[bucket.Spec]*bucket.Limit),
		copies:    rules.NewCopies(),
		strings:   make(map[string]string),
		outermost: make(map[*rules.Node]outermost),
	}
}

// reader reads the parts of rules in one file.
type reader struct {
	*yamlfile.Reader
	shared *shared
	// algorithm is the domain's, or 0.
	algorithm bucket.Algorithm
	// replaced holds all names in replaces, each with its first position.
	replaced map[string]yamlfile.Position
	// prefixes counts those of all cidr.
	prefixes int
}

// name reads a name. Equal ones share a copy.
func (p *reader) name(v yamlfile.Value, what string, longest int) (string, bool) {
	s, ok := p.Reader.Name(v, what, longest)
	if !ok {
		return "", false
	}
	return p.interned(s), true
}

// interned returns a copy of s that all equal ones share.
func (p *reader) interned(s string) string {
	if known, ok := p.shared.strings[s]; ok {
		return known
	}
	p.shared.strings[s] = s
	return s
}

// lineOfItem returns the line by which messages name an item of a list.
func (p *reader) lineOfItem(item yamlfile.Value) int32 {
	if p.Made {
		return int32(item.Index())
	}
	return int32(item.Node.Line)
}

// kindsOfLimits are the keys of a descriptor that give it limits.
var kindsOfLimits = []string{"rate_limit", "rate_limits", "plans"}

// isLimited reports whether a descriptor has limits.
func (p *reader) isLimited(o *yamlfile.Object) bool { return o.First(kindsOfLimits...) != "" }

func entryText(e bucket.Entry) string {
	if e.Value == "" {
		return "the key " + yamlfile.Quote(e.Key)
	}
	return yamlfile.Quote(e.Key) + " with the value " + yamlfile.Quote(e.Value)
}
