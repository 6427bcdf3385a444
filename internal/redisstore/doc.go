// Package redisstore keeps the states of limits in Redis: one server, a master
// behind Sentinel, or Redis Cluster, shared by any number of daemons.
//
// One script decides (script/). Every key begins with the prefix and one of a fixed
// number of hash tags, <prefix>{<tag>}:, chosen by its place, so that keys of equal
// places share a slot. On one server, or behind Sentinel, one command decides a
// request, atomically. On a cluster a request over several tags is first checked
// everywhere, and only then taken.
//
// A request goes through these layers, in this order:
//
//	Store      denies again what Redis just denied (denials)
//	backend    asks several hash tags of a cluster so that a denial is free (across),
//	           and has the fallback decide where Redis did not
//	pipe       gets groups decided by Redis: its nodes, queues, batches and breakers
//	script     encodes a batch, and decodes the reply
//
// A Store promises the same without denials (DenialMemory 0), without batches (the
// zero BatchBounds), and with one hash tag (HashTags 1). Without a fallback, a request that
// Redis does not decide fails.
//
// # Denials
//
// A client that keeps asking costs Redis one command a second instead of one a request.
// A denial is repeated to equal requests: the same keys and costs, by the same limits,
// which are others once their numbers have changed. It ends with its retry time, and
// within DenialMemory. It also ends when this daemon gives something back to one of its
// keys (a refund, a give-back, a settlement), or when their states are reset (Forget). What
// another daemon gives back takes effect within DenialMemory: until then the answer is the
// earlier denial, with what remained and the retry time of that moment. Requests with
// refunds, with charges of what was used, with quotas, with holders, or with more than 8
// limits are not remembered.
//
// # Several hash tags of a cluster
//
// No command is atomic over several slots, so a request over several hash tags becomes
// a piece for each. The checks get half of the available time. If a take denies after
// all checks allowed (a race), or fails, what the others took is given back; refunds
// are sent last. A request with one tag skips this, so a hash_tag is worth having on a
// cluster. A request that lost a race may take as long again as Redis has, to give back.
//
// # Deadlines
//
// Redis has the timeout of the connection, or four fifths of the caller's remaining
// time if that is less. What it has not decided by then, the fallback decides. Slots that a
// request took although its caller had left by then are given back.
package redisstore
