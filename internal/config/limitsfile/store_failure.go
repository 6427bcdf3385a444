package limitsfile

import (
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

const onStoreFailure = "on_store_failure"

// storeFailure reads the failure mode of a rule. It returns FailureDefault if there is
// none, or if it is wrong, which it reports.
func (p *reader) storeFailure(o *yamlfile.Object) bucket.FailureMode {
	v, ok := o.Field(onStoreFailure)
	if !ok {
		return bucket.FailureDefault
	}
	mode, _ := yamlfile.OneOf(p.Reader, v, bucket.FailureModes()...)
	return mode
}

// noStoreFailure reports on_store_failure on a descriptor for which no store is asked;
// why says why: "beside unlimited".
func (p *reader) noStoreFailure(o *yamlfile.Object, why string) {
	if o.Has(onStoreFailure) {
		p.Bad(o.Key(onStoreFailure), onStoreFailure+" "+why, onStoreFailure+" beside limits with numbers")
	}
}
