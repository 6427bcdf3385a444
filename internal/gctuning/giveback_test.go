package gctuning

import "testing"

func TestMemoryIsGivenBackWhenQuiet(t *testing.T) {
	const mib = 1 << 20
	var g giver
	for i, look := range []struct {
		name              string
		mapped, allocated uint64 // allocated since the last look
		due               bool
	}{
		{"at start", 25, 30, false},
		{"busy", 400, 1000, false},
		{"still busy", 450, 33, false},
		{"quiet", 450, 1, true},
		{"quiet, and what was held is gone", 450, 1, true},
		{"quiet, and nearly all is gone", 450, 1, true},
		{"quiet, and all is gone", 450, 1, true},
		{"quiet with what lives", 450, 1, false},
		{"a little more", 490, 1, false},
		{"much more", 499, 1, true},
		{"once more", 499, 1, true},
		{"and again", 499, 1, true},
		{"and for the last time", 499, 1, true},
		{"less, by itself", 70, 1, false},
		{"more than that, and little", 79, 1, false},
		{"more than that", 119, 1, true},
	} {
		allocated := g.allocated + look.allocated*mib
		if due := g.isDue(look.mapped*mib, allocated); due != look.due {
			t.Errorf("look %d, %s: due is %v", i, look.name, due)
		} else if due {
			g.floor = look.mapped * mib
		}
	}
}
