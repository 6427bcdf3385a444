// Package redislog keeps assignments in Redis, for all daemons that share it. It imports
// assign, bucket, redisconn and logthin.
//
// A hash has all assignments, and a stream the record of their changes; both have one hash
// tag. change.lua compares the version that a change replaces, appends the record, whose ID
// becomes the ETag, and writes the assignment, in one step. The maker then reads the record
// like everyone else, before Apply returns.
//
// To follow is to read the stream from the last record on, once a second. The last one
// comes again, and each names the one before it, so a gap shows. To load is to note the
// newest record, scan the hash, and follow. Store.refresh does what is needed of these. Its
// callers hold Store.mu, like all that change the table.
//
// Redis is the truth, unless it is empty: the field ~id of the hash says that it is whole.
// It is in the hash, so that an eviction takes both. Without it, or with nothing beside it
// where a daemon has seen changes, restore.lua puts back what the table has. It compares the
// newest changes: a newer view replaces an older one that is being put back, or that was
// and nothing has changed since. ~id is written last; a daemon that dies halfway is followed
// by another. A daemon that has nothing writes ~id at once. Records are not put back:
// people's audit is lost with Redis.
//
// Less than that may be lost, by a failover or an older dump: a daemon whose records do not
// go on from its last one loads again, and reports which changes it had in force that Redis
// no longer has. Of two changes one after the other Redis never has only the later one, so
// the first lost one is found by halves.
//
// A reset writes its record, then deletes states, tag by tag; if that fails, a second
// record says so. What has ended is swept within a minute or two, without a record.
package redislog
