// Package client asks ratelimitd whether something may be done now.
//
//	limiter, err := client.New("ratelimitd:8081", client.OnFailure(client.FailAllow()))
//	...
//	allowed, err := limiter.Allow(ctx, "api", client.E("user", id))
//
// A Client is made once and shared: its methods may be called concurrently.
//
// # Requests
//
// A request names a domain and descriptors, lists of entries that the rules of
// the daemon's limits files match. All descriptors of a request pass together,
// or none does, and a request that is denied consumes nothing.
//
// Allow asks about one descriptor at a cost of 1. Take asks about several, at
// any cost, and returns the answer of each limit. Wait asks until the request is
// allowed, and sleeps in between for as long as the denial says; if a
// leaky_bucket allowed the request, Wait holds it until it may leave. GiveBack
// returns the cost of a Take.
//
// Where the cost is known only afterwards, as that of a language model's answer, a Take
// with an ID reserves what it may be, and Result.Settle says what it was; Client.Settle
// does by the ID, in any process.
//
// Acquire waits for a slot of a limit of requests in flight, and holds it until it is
// released; Do does so around a function. A descriptor with a HolderKey asks for a slot. Slot
// says what people want of it, and how it goes wrong.
//
// # Failures
//
// No call blocks longer than the client's timeout (Timeout, 50 ms), except for
// the sleeps of Wait, Acquire and Do, and over a limit with a lease for the answers to others,
// as Timeout says. If there is no answer by then, or the daemon fails, the
// choice of OnFailure decides: FailAllow, FailDeny, FailLocal, which decides in
// this process by a limit of its own, or FailError, the default. Such a decision
// is never silent: it sets Result.Failure, Stats counts it, and the Logger, if there is
// one, logs when failures begin and end.
//
// A request whose outcome is unknown is never sent again. An invalid request is
// an error whatever the choice is, and so is the end of the caller's context.
//
// # Leases
//
// Where all limits of a request have a lease, the client asks for as many units as it
// expects to use in the lease's time, and decides by itself until they are used or the time
// is over: Allow takes less than a microsecond then, and no limit is exceeded, since the
// daemon has charged these units before. What is left goes back. A denial is repeated
// likewise, for as long as the daemon says. Result.Leased marks such decisions, and Stats
// counts them. Requests with an ID, a HolderKey, Numbers, a Peek or costs that differ are
// not leased. While the daemon is away, leases go on to their end. Changes of limits, and
// blocks, are in force once they are over.
//
// # Streams
//
// Requests travel on one stream for each connection to a daemon. Requests that
// arrive while others are being sent go together, so that a busy process pays a fraction
// of a call for each. Where streams do not get through, the client notices and makes a
// call for each request; it tries a stream again after a minute, or after 5 s if one has
// passed before.
//
// A target is anything that grpc.NewClient takes. If it names several daemons, by
// DNS (dns:///ratelimitd.example:8081) or as a list (a:8081,b:8081), they are asked in
// turn. A daemon that hangs costs one request its timeout, and gets no others for 10 s
// while other daemons answer. DialOptions are passed on, such as interceptors and stats
// handlers for tracing; they see one stream for many requests. Where the context of a
// request has a sampled span of OpenTelemetry, the daemon's span is its child.
package client
