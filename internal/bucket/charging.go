package bucket

import (
	"fmt"
)

// Postpaid says when the cost of a hit is what was already used, which is charged
// in full.
type Postpaid uint8

const (
	// PostpaidNever charges only what is allowed.
	PostpaidNever Postpaid = iota
	// PostpaidAlways charges every cost in full.
	PostpaidAlways
	// PostpaidAuto charges in full what a caller reports by itself, as
	// envoyproxy/ratelimit does, and everything else only if it is allowed. See Reported.
	PostpaidAuto
)

var postpaidNames = [...]string{PostpaidNever: "false", PostpaidAlways: "true", PostpaidAuto: "auto"}

// String returns the value as in a limits file.
func (p Postpaid) String() string {
	if int(p) >= len(postpaidNames) {
		return fmt.Sprintf("Postpaid(%d)", uint8(p))
	}
	return postpaidNames[p]
}

// Charging says which hits a limit allows and charges. A cost above 0 is charged
// either if it and its group are allowed, or always: beyond the capacity too, and
// whatever the group gets. The script on Redis has the same values.
type Charging uint8

const (
	// ChargesAdmitted: a cost is allowed if it fits into what remains, and a peek
	// if a cost of 1 does. What is not allowed is not charged.
	ChargesAdmitted Charging = iota
	// ChargesUse: a cost is always charged. Costs and peeks are allowed while
	// anything remains.
	ChargesUse
	// ChargesReported: a cost is always charged, and allowed if it fits into what
	// remains. A peek is allowed unless more than the capacity was charged. It is
	// what envoyproxy/ratelimit does with hits_addend.
	ChargesReported
)
