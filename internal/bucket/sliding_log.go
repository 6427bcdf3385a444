package bucket

// sliding_log admits at most its requests in any span of one period, exactly:
// it keeps a stamp (time, cost) of every admitted hit until it is a period
// old. It is a sliding_window whose slots gather for one microsecond, the
// tick of its clock, so that a hit counts for exactly a period; hits of the
// same microsecond share a stamp, which tells no difference. The price is a
// stamp per hit: requests are at most MaxLogRequests.
//
// The charges of a postpaid log are not bounded by its requests. From the
// stamp maxSpans on, or where no more can be counted, further ones join the
// newest stamp, which then counts from the latest of them: it errs only to the
// safe side.
