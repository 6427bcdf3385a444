// Package replay decides recorded requests again, in virtual time: those of a decision
// log, of an access log or of a table. It says what limits would have done, and compares
// that with what was recorded or with what other limits would have done.
//
// decide matches rules and makes hits, and bucket's steps decide them, as in a daemon;
// the clock is the time of each line. It imports decide, record, authapi, limitsfile,
// rules, assign, decisionlog and bucket.
package replay
