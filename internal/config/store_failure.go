package config

import "github.com/ratelimitd/ratelimitd/internal/bucket"

const onStoreFailure = "on_store_failure"

// storeFailure reads what answers for the limits of a rule when their store
// does not. It returns FailureDefault if the rule does not say, or says it
// wrongly, which is then reported.
func (p *fileParser) storeFailure(o *object, at *path) bucket.FailureMode {
	v := o.get(onStoreFailure)
	if v == nil {
		return bucket.FailureDefault
	}
	var names []string
	for _, m := range bucket.FailureModes() {
		names = append(names, m.String())
	}
	at = at.key(onStoreFailure)
	s, ok := p.text(v, at, commas(names))
	if !ok {
		return bucket.FailureDefault
	}
	mode, err := bucket.ParseFailureMode(s)
	if err != nil {
		p.badName(v, at, s, names)
	}
	return mode
}

// noStoreFailure reports on_store_failure on a descriptor for which no store is
// asked, and why: "beside unlimited".
func (p *fileParser) noStoreFailure(o *object, at *path, why string) {
	if o.get(onStoreFailure) != nil {
		p.bad(o.key(onStoreFailure), at.key(onStoreFailure), onStoreFailure+" "+why, onStoreFailure+" beside limits with numbers")
	}
}
