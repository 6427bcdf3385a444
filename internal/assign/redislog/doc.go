// Package redislog keeps assignments in Redis, for all daemons that share it. It imports
// assign, redisconn and logthin.
//
// # Where assignments are
//
// The assignments are spread over the hash tags of the limits: the text of a subject
// determines its tag. A tag has a hash with its assignments, <prefix>{<tag>}~assigned,
// and a stream of their changes, <prefix>{<tag>}~changes, which is also the record of who
// changed what. change.lua compares the version that the caller wants to replace, changes
// the named parts as assign.Change.Apply does, and writes both in one step; the version,
// an ETag, is the ID of the change. reset.lua forgets states of limits, and adds the
// record of it to the stream of their tag. Making a change twice does no harm, so one
// whose reply was lost is sent once more.
//
// # How daemons follow
//
// A ring of the doorbell, <prefix>{~assign}~doorbell, wakes the daemons, including the
// one that made the change. Each reads the streams from the ID that it has seen; without
// a ring it looks every 2 s. Nothing else puts an assignment into the table. Once the
// table has a change, the daemon quiesces, forgets the denials of states that were reset,
// and writes the ID into <prefix>{<tag>}~seen. The maker of the change waits until all
// daemons of the register have done so, at most 2 s, and names those that have not. A
// daemon that was waited for in vain is named at once by later changes, until it has
// caught up. A sweep removes an assignment within a minute or two of its end.
//
// # Loss
//
// A change names the one before it, and is made only if what Redis has continues from the
// last one that its maker knows. If a daemon has another one, or the stream ends before
// it (a failover lost writes, or too much was removed for its age), the daemon loads the
// tag again: the ID of the newest change first, then the hash, then what came after that
// ID. The hash says so while some of its tag is still to be put back, so that nobody
// takes that part for the whole. When a daemon with newer assignments puts them back, the
// parts that were changed since the loss stay: those that their record names. So where
// something was put back, which the epoch of the tag says, a change that finds everything
// as it should be is recorded too.
//
// A daemon that lost its tenure (package fleet) makes all others look, and put back what
// Redis lacks, before it reads. So does a daemon that starts, if the register is young
// and another says that Redis lacks something. Until then nothing is changed through it:
// what is changed on top of older parts would stay, and the newer ones would be lost.
//
// While Redis is away the table stays as it is. When all daemons were restarted with
// another number of hash tags, the first one moves the assignments and the others wait;
// the records stay in the streams of the former tags, and are read from there.
package redislog
