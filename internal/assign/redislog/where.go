package redislog

import (
	"fmt"
	"slices"
	"strings"
)

// Where says which Redis, and which prefix in it, holds the assignments.
type Where struct {
	// Mode is the mode of the connection. It has no blanks.
	Mode string
	// Addresses are the addresses by which it is found: some of its nodes, or of its
	// sentinels.
	Addresses []string
	// Master is the name by which sentinels know it; otherwise empty.
	Master   string
	Database int
	Prefix   string
}

// whereFormat is the format of a Where as text, as found in snapshots.
const whereFormat = "%s %s master %q, database %d, prefix %q"

// String returns a text for parseWhere, and for people.
func (w Where) String() string {
	addresses := strings.Join(slices.Sorted(slices.Values(w.Addresses)), ",")
	return fmt.Sprintf(whereFormat, w.Mode, addresses+",", w.Master, w.Database, w.Prefix)
}

func parseWhere(text string) (w Where, err error) {
	addresses := ""
	_, err = fmt.Sscanf(text, whereFormat, &w.Mode, &addresses, &w.Master, &w.Database, &w.Prefix)
	w.Addresses = strings.Split(strings.TrimSuffix(addresses, ","), ",")
	return w, err
}

// isIn reports whether what a snapshot says about itself means this Redis. A cluster has
// many addresses, some of which are in the settings: one in common is enough.
func (w Where) isIn(text string) bool {
	o, err := parseWhere(text)
	if err != nil {
		return text == w.String()
	}
	isCommon := slices.ContainsFunc(o.Addresses, func(address string) bool { return slices.Contains(w.Addresses, address) })
	return isCommon && o.Mode == w.Mode && o.Master == w.Master && o.Database == w.Database && o.Prefix == w.Prefix
}
