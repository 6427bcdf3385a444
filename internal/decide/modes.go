package decide

// Modes change how limits count, in all domains.
type Modes struct {
	// Shadow lets every request pass. Answers still say what the limits decided.
	Shadow bool
	// Quota denies a request only if all its descriptors are over their limits.
	Quota bool
	// DenyUnmatched denies descriptors without a rule, in domains that do not say what
	// to do with them.
	DenyUnmatched bool
}

// giveRoles reports whether the modes give roles to the hits of rules that have none.
func (m Modes) giveRoles() bool { return m.Shadow || m.Quota }
