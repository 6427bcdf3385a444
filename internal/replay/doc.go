// Package replay decides recorded requests again, in virtual time: those of a log of
// decisions, of an access log or of a table. It says what limits would have done, and
// compares that with what was recorded or with what other limits would have done.
//
// Rules match and hits are made by decide, and bucket's steps decide them, as in a
// daemon; the clock is the moment of each line. It imports decide, record, authapi, config,
// assign, decisionlog and bucket.
package replay
