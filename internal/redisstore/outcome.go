package redisstore

// outcome is what became of a part for its request: who decided it, or why nobody
// did. Only the goroutine of the request reads and writes a part's outcome. What
// ends its wait hands over the new one by part.done.
type outcome struct {
	state outcomeState
	// err is why Redis did not decide, or of a part byNobody why nobody did.
	// It is nil if the part is pending or byRedis.
	err error
}

type outcomeState uint8

// Of unasked, unanswered and commandFailed the fallback is to decide.
const (
	pending       outcomeState = iota // Redis is to decide
	byRedis                           // Redis has decided
	unasked                           // it was not sent
	unanswered                        // it was sent, and abandoned before an answer
	commandFailed                     // its command ended with err, or found an unreadable state
	byFallback                        // the fallback has decided
	byNobody                          // the fallback has not decided either
)

// commandEnded is the outcome of a part whose command ended with err, or nil.
func commandEnded(err error) outcome {
	if err != nil {
		return outcome{commandFailed, err}
	}
	return outcome{state: byRedis}
}

// isPending reports whether Redis is to decide.
func (o outcome) isPending() bool { return o.state == pending }

// isDecided reports whether there are decisions.
func (o outcome) isDecided() bool { return o.state == byRedis || o.state == byFallback }

// needsFallback reports whether Redis did not decide, and nobody else has yet.
func (o outcome) needsFallback() bool {
	return o.state == unasked || o.state == unanswered || o.state == commandFailed
}

// isUnknown reports whether only Redis knows if the part was charged.
func (o outcome) isUnknown() bool {
	return o.state == unanswered || o.state == commandFailed && mayHaveRun(o.err)
}

// afterFallback is the outcome once the fallback has been asked too, which ended
// with err, or nil.
func (o outcome) afterFallback(err error) outcome {
	if err != nil {
		return outcome{byNobody, err}
	}
	return outcome{byFallback, o.err}
}

// failure returns why nobody decided; nil if somebody did, or is to.
func (o outcome) failure() error {
	if o.state == byNobody {
		return o.err
	}
	return nil
}

// passedOn is the outcome with which a later part of the same hash tag begins:
// Redis is not asked again for what it did not decide.
func (o outcome) passedOn() outcome {
	if o.state == byFallback {
		return outcome{unasked, o.err}
	}
	return outcome{}
}
