// Package fleet is the register of the daemons that share a prefix in Redis: it counts
// them, and finds those that disagree on what all must agree on. It imports only
// redisconn and logthin.
//
// # Who waits for whom
//
// Changes of assignments wait for the daemons of the roll, which is next to the register
// and remembers them longer. No daemon decides by what a change has replaced:
//
// The maker of a change reads the roll after the change is written, and considers a
// daemon gone only after seeing the same sign-in of it for 7 s, by its own monotonic
// clock. No clock of Redis counts.
//
// A daemon has tenure for 6 s from when its last sign-in began, so it has lost it before
// anyone considers it gone. If it signs in while it has tenure, changes waited for it all
// the time. Otherwise it signs in first, so that changes from then on wait for it, and
// then catches up with the earlier ones.
//
// A decision counts if one tenure held from before the assignments were read until after
// the store's reply, by the monotonic and the wall clock, and no clock of Redis has
// gained on them (package decide).
//
// A roll that was lost gets another name. For 7 s nobody knows which daemons it had, and
// changes wait that long: by then the earlier tenures are over. The same holds for a roll
// on a node that was promoted, which may lack the last sign-ins: its name ends with the
// node's replication ID. It keeps the daemons that it has, and none of them counts as
// gone before those 7 s are over.
package fleet
