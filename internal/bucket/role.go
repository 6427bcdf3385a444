package bucket

// Role says how a hit takes part in the decision whether its group is allowed.
type Role int32

const (
	// Enforced hits must all be allowed.
	Enforced Role = 0
	// Aside hits do not matter to their group. They are charged if they and
	// their group are allowed.
	Aside Role = -1
)

// Quota returns the role of the hits of the n-th quota, from 1 on. A quota is
// allowed if all its hits are. Of the quotas in a group at least one must be
// allowed; hits of the others are charged as Aside ones are. The hits of a quota follow
// each other, except for hits Aside, and later quotas have higher numbers.
func Quota(n int) Role { return Role(n) }

// strictest returns the role of a hit that is merged from two.
func strictest(a, b Role) Role {
	switch {
	case a == Enforced || b == Enforced:
		return Enforced
	case a == Aside:
		return b
	case b == Aside:
		return a
	default:
		return min(a, b)
	}
}
