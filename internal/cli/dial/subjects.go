package dial

import (
	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// EachSubject calls do with the daemon and the entries of each argument, once all of them
// could be read. It stops at the first error.
func (t *Target) EachSubject(args []string, do func(a Admin, entries []*ratelimitv1.Entry) error) error {
	subjects, err := assigntext.ParseTake("", args)
	if err != nil {
		return err
	}
	return t.WithAdmin(func(a Admin) error {
		for _, d := range subjects.GetDescriptors() {
			if err := do(a, d.GetEntries()); err != nil {
				return err
			}
		}
		return nil
	})
}
