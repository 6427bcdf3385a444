package config

import (
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

const onStoreFailure = "on_store_failure"

// storeFailure reads what answers for the limits of a rule when their store
// does not. It returns FailureDefault if the rule does not say, or says it
// wrongly, which is then reported.
func (p *fileParser) storeFailure(o *yamlfile.Object) bucket.FailureMode {
	v, ok := o.Field(onStoreFailure)
	if !ok {
		return bucket.FailureDefault
	}
	var names []string
	for _, m := range bucket.FailureModes() {
		names = append(names, m.String())
	}
	s, ok := p.Text(v, yamlfile.Commas(names))
	if !ok {
		return bucket.FailureDefault
	}
	mode, err := bucket.ParseFailureMode(s)
	if err != nil {
		p.BadName(v, s, names)
	}
	return mode
}

// noStoreFailure reports on_store_failure on a descriptor for which no store is
// asked, and why: "beside unlimited".
func (p *fileParser) noStoreFailure(o *yamlfile.Object, why string) {
	if o.Has(onStoreFailure) {
		p.Bad(o.Key(onStoreFailure), onStoreFailure+" "+why, onStoreFailure+" beside limits with numbers")
	}
}
