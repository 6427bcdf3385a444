// Package redisstore keeps the states of limits in Redis: one server, a master
// behind Sentinel, or Redis Cluster, shared by any number of daemons. It imports
// bucket, fallback, redisconn, timespan and logthin.
//
// One script decides (script/). Every key begins with the prefix and one of a fixed
// number of hash tags, <prefix>{<tag>}:, chosen by its place, so that keys of equal
// places share a slot. On one server, or behind Sentinel, one command decides a
// request, atomically. On a cluster a request over several tags is first checked
// everywhere, and only then taken.
//
// A request goes through these pieces, in this order:
//
//	denials    denies again what Redis just denied
//	across     asks several hash tags of a cluster so that a denial is free
//	breaker    fails at once while the node does not answer
//	batcher    gathers requests for a node while its last batch is in flight
//	turns      lets the hash tags of a busy node of a cluster take turns
//	batch      becomes commands, is sent, and hands their replies back
//	fallback   decides where Redis did not
//
// A Store promises the same without denials (DenialMemory 0), without batches (the
// zero BatchBounds), and with one hash tag (HashTags 1). Without a fallback, a request that
// Redis does not decide fails.
//
// # Denials
//
// A client that keeps asking costs Redis one command a second instead of one a request.
// A take, a refund or a give-back through this daemon from any limit of a denied request
// makes the store forget the denial at once. One through another daemon takes effect
// within DenialMemory: until then the answer is the earlier denial, with what remained
// and the retry time of that moment, though the other daemon may have taken what was
// left. Requests with refunds, with charges of what was used, with quotas, with holders,
// or with more than 8 limits are not remembered, nor is the first denial after some
// seconds without any.
//
// # Several hash tags of a cluster
//
// No command is atomic over several slots, so a request over several hash tags becomes
// a piece for each. The checks get half of the available time. If a take denies after
// all checks allowed (a race), or fails, what the others took is given back; refunds
// are sent last. A request with one tag skips this, so a hash_tag is worth having on a
// cluster.
//
// # Batches
//
// There is no timer: an idle node is asked at once, by the caller itself if it has time
// for the whole timeout, and what comes while Batch.InFlight batches are away goes with the next one. So batches grow
// with the load. More batches in flight cost more commands per decision and rarely
// help. With a size of 1, each request is a command as soon as there is a connection.
//
// A batch is one EVALSHA; on a cluster one for each hash tag, sent together. Equal
// requests, as on a hot key, are sent as one with their number; the script decides them
// one after the other, so each gets what it would have got alone. Requests that name
// holders are not joined, since they differ. A take is sent again only if Redis said
// that it did not run: NOSCRIPT, MOVED, ASK, TRYAGAIN, or what the script says, below.
//
// # Windows by calendar
//
// The script knows no calendar. Of each limit with one it gets two windows that follow
// each other, chosen by the node's clock as this daemon knows it, and decides by its own.
// If that is in neither, it charges nothing of the request and says so, and the request is
// sent again, alone and with the right ones. That happens only where a node's clock is
// another than it was, as after a failover, by more than a minute.
//
// # Deadlines
//
// Redis has the timeout of the connection, or four fifths of the caller's remaining
// time if that is less. Whoever sends a batch notices by its timeout, the callers who
// wait by the batcher's watch, and while the breaker is open nobody waits. Requests
// without an answer by then are abandoned, and the fallback decides them. A request over several tags that lost a race may take as long
// again, to give back.
package redisstore
