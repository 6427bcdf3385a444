package config

import (
	"github.com/ratelimitd/ratelimitd/internal/bucket"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

const onStoreFailure = "on_store_failure"

// storeFailure reads what answers for the limits of a rule when their store
// does not. It returns FailureDefault if the rule does not say, or says it
// wrongly, which is then reported.
func (p *fileParser) storeFailure(o *yamlfile.Object, at *yamlfile.Path) bucket.FailureMode {
	v := o.Get(onStoreFailure)
	if v == nil {
		return bucket.FailureDefault
	}
	var names []string
	for _, m := range bucket.FailureModes() {
		names = append(names, m.String())
	}
	at = at.Key(onStoreFailure)
	s, ok := p.Text(v, at, yamlfile.Commas(names))
	if !ok {
		return bucket.FailureDefault
	}
	mode, err := bucket.ParseFailureMode(s)
	if err != nil {
		p.BadName(v, at, s, names)
	}
	return mode
}

// noStoreFailure reports on_store_failure on a descriptor for which no store is
// asked, and why: "beside unlimited".
func (p *fileParser) noStoreFailure(o *yamlfile.Object, at *yamlfile.Path, why string) {
	if o.Get(onStoreFailure) != nil {
		p.Bad(o.Key(onStoreFailure), at.Key(onStoreFailure), onStoreFailure+" "+why, onStoreFailure+" beside limits with numbers")
	}
}
