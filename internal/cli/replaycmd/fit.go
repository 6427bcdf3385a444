package replaycmd

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/flags"
	"github.com/ratelimitd/ratelimitd/internal/replay"
)

// fitting are the flags that go with --fit.
type fitting struct {
	by string
}

func (f *fitting) bind(cmd *cobra.Command) {
	f.by = replay.BySubject.String()
	flags.BindWord(cmd, &f.by, []string{replay.BySubject.String(), replay.ByRequest.String()}, "by",
		"what --fit has a share of pass: subject, each with all its requests, or request")
}

// option returns the option that the flags ask for.
func (f *fitting) option() replay.FitBy {
	if f.by == replay.ByRequest.String() {
		return replay.ByRequest
	}
	return replay.BySubject
}

// needsFit returns an error if --by is given without --fit.
func (r *replaying) needsFit() error {
	if r.isSet("by") && !r.isSet("fit") {
		return errors.New("found --by without --fit; allowed: --fit 99.9% --by " + r.fitting.by + ", or neither")
	}
	return nil
}
