package access

import "slices"

// Role is what a caller of the admin API may do. Each role may do all that those before
// it may.
type Role uint8

// Roles.
const (
	NoRole Role = iota
	// Viewer sees rules, assignments, daemons and the audit.
	Viewer
	// Support also explains, inspects and resets, and sees who had the most.
	Support
	// Operator may do everything.
	Operator
)

var roleNames = []string{NoRole: "none", Viewer: "viewer", Support: "support", Operator: "operator"}

// String returns the role as a file spells it.
func (r Role) String() string { return roleNames[r] }

// RoleNames returns the names of the roles that a file may have, the least first.
func RoleNames() []string { return slices.Clone(roleNames[Viewer:]) }

// ParseRole returns the role with that name, which is never NoRole.
func ParseRole(name string) (Role, bool) {
	i := slices.Index(roleNames, name)
	return Role(max(i, 0)), i > 0
}
