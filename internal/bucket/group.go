package bucket

// Allowed reports whether all of these hits were allowed.
func Allowed(decisions []Decision) bool {
	for i := range decisions {
		if decisions[i].RetryAfter != 0 {
			return false
		}
	}
	return true
}

// GroupAllowed reports whether a group of merged hits is allowed, when each hit
// by itself got its decision.
func GroupAllowed(hits []Hit, decisions []Decision) bool {
	quotas := false
	for i := range decisions {
		if decisions[i].RetryAfter == 0 {
			continue
		}
		switch role := hits[i].Role; {
		case role == Enforced:
			return false
		case role != Aside:
			quotas = true
		}
	}
	return !quotas || someQuotaAllowed(hits, decisions)
}

func someQuotaAllowed(hits []Hit, decisions []Decision) bool {
	at, allowed := Aside, false
	for i := range hits {
		role := hits[i].Role
		if role <= Enforced {
			continue
		}
		if role != at {
			if allowed {
				return true
			}
			at, allowed = role, true
		}
		allowed = allowed && decisions[i].Allowed()
	}
	return allowed
}

// Due reports whether a hit that by itself got d is to be charged, in a group that
// is allowed or not.
func Due(h *Hit, d *Decision, allowed bool) bool {
	return allowed && d.RetryAfter == 0 || h.Limit.ChargedAnyway(h.Cost)
}

// Charged reports whether a Take that returned d for a hit, in a group that was
// allowed or not, took something that can be given back.
func Charged(h *Hit, d *Decision, allowed bool) bool {
	return h.Cost > 0 && d.Renewal == NotRenewed && Due(h, d, allowed)
}
