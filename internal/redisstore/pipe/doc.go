// Package pipe gets groups of hits decided by Redis: it gathers requests in batches for
// each node, sends them, and hands the decisions back. It knows nothing of what denies or
// decides in the place of Redis.
//
// A request is Waiting, Sent, and then Decided or Failed. A caller who has no time left, or
// disconnects, leaves it: then it has Left, or is Abandoned if it was sent, since only Redis
// knows its outcome. A request is sent again only if Redis said that it did not run:
// NOSCRIPT, MOVED, ASK, TRYAGAIN, or what the script says of windows, below.
//
// # Batches
//
// There is no timer: an idle node is asked at once, by the caller itself if it has time
// for the whole timeout, and what comes while Bounds.InFlight batches are away goes with
// the next one. So batches grow with the load. More batches in flight cost more commands
// per decision and rarely help. With a size of 1, each request is a command as soon as
// there is a connection.
//
// A batch is one EVALSHA; on a cluster one for each hash tag, sent together, and the tags
// of a busy node take turns. Equal requests, as on a hot key, are sent as one with their
// number; the script decides them one after the other, so each gets what it would have got
// alone. Requests that name holders are not joined, since they differ.
//
// # Windows by calendar
//
// The script knows no calendar. Of each limit with one it gets two windows that follow
// each other, chosen by the node's clock as this daemon knows it, and decides by its own.
// If that is in neither, it charges nothing of the request and says so, and the request is
// sent again, alone and with the right ones. That happens only where a node's clock is
// another than it was, as after a failover, by more than a minute.
//
// # Silence
//
// The sender of a batch notices silence by its timeout, waiting callers by the watch
// of the queue. After two failures in a row the breaker of the node opens: until a probe is
// answered no caller waits for it.
package pipe
