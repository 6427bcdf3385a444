package pipe

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func tagged(tags ...int) (waiting []*Request) {
	for _, tag := range tags {
		r := NewRequest()
		r.Tag = tag
		waiting = append(waiting, r)
	}
	return waiting
}

// taken returns the tags of the requests that are in turn.
func (t *turns) taken(waiting []*Request) (tags []int) {
	inTurn := t.next(waiting)
	for _, r := range waiting {
		if inTurn(r) {
			tags = append(tags, r.Tag)
		}
	}
	return tags
}

func TestTagsTakeTurns(t *testing.T) {
	for _, c := range []struct {
		name    string
		tags    int
		waiting []int
		want    []int
	}{
		{"no cluster", 0, []int{0, 0, 0, 0, 0, 0, 0, 0}, []int{0, 0, 0, 0, 0, 0, 0, 0}},
		{"few wait", 32, []int{3, 1, 3, 1, 1}, []int{3, 1, 3, 1, 1}},
		{"one for each tag", 32, []int{3, 1, 4, 5, 9, 2, 6, 8}, []int{3, 1, 4, 5, 9, 2, 6, 8}},
		{"two for each tag, the oldest first", 32, []int{9, 1, 3, 3, 1, 2, 2, 9}, []int{9, 1, 1, 9}},
		{"an odd number of tags", 32, []int{3, 1, 4, 3, 1, 4, 3, 1}, []int{3, 1, 3, 1, 3, 1}},
		{"four for each tag", 32, []int{1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}, []int{1, 2, 1, 2, 1, 2, 1, 2}},
		{"one tag", 32, []int{7, 7, 7, 7, 7, 7, 7, 7}, []int{7, 7, 7, 7, 7, 7, 7, 7}},
	} {
		t.Run(c.name, func(t *testing.T) {
			turns := turns{tags: make([]turn, c.tags)}
			if got := turns.taken(tagged(c.waiting...)); !slices.Equal(got, c.want) {
				t.Fatalf("of %v come %v, want %v", c.waiting, got, c.want)
			}
			if got := turns.taken(tagged(c.waiting...)); !slices.Equal(got, c.want) {
				t.Fatalf("later, of %v come %v, want %v", c.waiting, got, c.want)
			}
		})
	}
}

// Whatever comes, a request waits for four other batches at most, and on a busy node a
// command has more requests than without turns.
func TestTurnsComeSoon(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	turns := turns{tags: make([]turn, 11)}
	var waiting []*Request
	passed := make(map[*Request]int)
	requests, commands := 0, 0
	for range 2000 {
		for range r.IntN(60) {
			waiting = append(waiting, tagged(r.IntN(11))...)
		}
		inTurn, tags := turns.next(waiting), make(map[int]bool)
		waiting = slices.DeleteFunc(waiting, func(q *Request) bool {
			if !inTurn(q) {
				if passed[q]++; passed[q] > 4 {
					t.Fatalf("a request with tag %d waits for a fifth batch", q.Tag)
				}
				return false
			}
			delete(passed, q)
			tags[q.Tag] = true
			requests++
			return true
		})
		commands += len(tags)
	}
	if commands*9 > requests*2 {
		t.Errorf("%d commands for %d requests", commands, requests)
	}
}
