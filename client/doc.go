// Package client asks ratelimitd whether something may be done now.
//
//	limiter, err := client.New("ratelimitd:8081", client.OnFailure(client.FailAllow()))
//	...
//	allowed, err := limiter.Allow(ctx, "api", client.E("user", id))
//
// A Client is made once and shared: its methods may be called concurrently.
//
// # What it asks
//
// A request names a domain and descriptors, lists of entries that the rules of
// the daemon's limits files match. All descriptors of a request pass together,
// or none does, and a request that is denied consumes nothing. Allow asks about
// one descriptor at a cost of 1; Take asks anything and tells what each limit
// said; Wait asks until it is allowed, sleeps as long as it is told in between,
// and holds what a leaky_bucket lets pass until it may leave; GiveBack returns
// what a Take took.
//
// # When there is no answer
//
// No call blocks longer than the client's timeout (Timeout, 50 ms), Wait's
// sleeps aside. When there is no answer by then, or the daemon fails, what
// decides is the choice that OnFailure made: FailAllow, FailDeny, FailLocal,
// which decides in this process by a limit of its own, or FailError, which is
// the choice unless another is made. Such a decision is never a silent one:
// Result.Failure is set, Stats counts it, and the log, if there is one, says
// when it begins and ends. A request whose outcome is not known is never sent
// again. A request that cannot be meant is an error whatever the choice, and so
// is the end of the caller's context.
//
// # How it asks
//
// Requests travel on one stream for each daemon's connection. Those that come
// while others are being sent go together, so that a busy process pays a
// fraction of a call for each. Where streams do not pass, the client notices
// and makes a call for each request; it tries a stream again after a minute.
//
// A target is what grpc.NewClient takes; one that names several daemons, by DNS
// (dns:///ratelimitd.example:8081) or as a list (a:8081,b:8081), has them asked
// in turns. One that hangs costs a request its time, and is left alone for 10 s
// while others answer. DialOptions pass through, such as interceptors and stats
// handlers for tracing; they see one stream for many requests.
package client
