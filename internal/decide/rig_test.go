package decide_test

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/decide/decidetest"
)

// rig is a decidetest.Rig with assignments.
type rig struct{ *decidetest.Rig }

func newRig(t testing.TB, limits string, change ...func(*decide.Options)) *rig {
	t.Helper()
	return &rig{decidetest.NewRig(t, limits, change...)}
}

func (r *rig) assign(entries string, terms assign.Terms) {
	r.Assigned.Put(&assign.Assignment{Subject: assign.Subject{Domain: "d", Entries: decidetest.Entries(entries)}, Base: assign.Layer{Terms: terms}, ETag: "1"})
}
