package redisstore

// decidedBy says who decided a request, or why nobody did. Only the goroutine of its
// caller reads and writes it. Whatever ends the wait sends a new one to request.done.
type decidedBy struct {
	state deciderState
	// err is why Redis did not decide, or in the state byNobody why nobody did.
	// It is nil in the states pending and byRedis.
	err error
}

type deciderState uint8

// The fallback is to decide requests that are unasked, unanswered or commandFailed.
const (
	pending       deciderState = iota // Redis is to decide
	byRedis                           // Redis has decided
	unasked                           // it was not sent
	unanswered                        // it was sent, and abandoned before an answer
	commandFailed                     // its command ended with err, or found an unreadable state
	byFallback                        // the fallback has decided
	byNobody                          // the fallback has not decided either
)

// commandEnded says who decided a request whose command ended with err, or nil.
func commandEnded(err error) decidedBy {
	if err != nil {
		return decidedBy{commandFailed, err}
	}
	return decidedBy{state: byRedis}
}

// isPending reports whether Redis is to decide.
func (d decidedBy) isPending() bool { return d.state == pending }

// isDecided reports whether there are decisions.
func (d decidedBy) isDecided() bool { return d.state == byRedis || d.state == byFallback }

// needsFallback reports whether Redis did not decide, nor anybody else yet.
func (d decidedBy) needsFallback() bool {
	return d.state == unasked || d.state == unanswered || d.state == commandFailed
}

// isUnknown reports whether only Redis knows if the request was charged.
func (d decidedBy) isUnknown() bool {
	return d.state == unanswered || d.state == commandFailed && mayHaveRun(d.err)
}

// afterFallback says who decided once the fallback was asked too and ended with err, or
// nil.
func (d decidedBy) afterFallback(err error) decidedBy {
	if err != nil {
		return decidedBy{byNobody, err}
	}
	return decidedBy{byFallback, d.err}
}

// failure returns why nobody decided; nil if somebody did, or is to.
func (d decidedBy) failure() error {
	if d.state == byNobody {
		return d.err
	}
	return nil
}

// passedOn is what a later piece of the same hash tag begins with: Redis is not asked
// again about what it did not decide.
func (d decidedBy) passedOn() decidedBy {
	if d.state == byFallback {
		return decidedBy{unasked, d.err}
	}
	return decidedBy{}
}
