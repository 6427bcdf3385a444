package zone

import (
	"bytes"
	"strings"
	"sync"
)

const (
	// maxNear is how many names an error shows.
	maxNear = 3
	// maxSlips is how many letters of a name may be wrong.
	maxSlips = 2
	// maxCompared is the longest name that is compared with others, in bytes; the
	// IANA's have at most 30.
	maxCompared = 40
)

// nearest returns names that may be meant by one that is no place: those of places with
// the very same data, else those that are spelt almost like it.
func nearest(name string) []string {
	if len(name) > maxCompared {
		return nil
	}
	if f := files()[name]; f != nil {
		if same := namesWhere(func(i int) bool { return bytes.Equal(files()[Names()[i]].data, f.data) }); len(same) > 0 {
			return same
		}
	}
	if name == "" || strings.EqualFold(name, "local") {
		return nil
	}
	wanted := plain(name)
	if wanted == "utc" || wanted == "gmt" || wanted == "z" || wanted == "zulu" {
		return []string{UTC}
	}
	for slips := range maxSlips + 1 {
		near := namesWhere(func(i int) bool {
			other := plainNames()[i]
			place := other[strings.LastIndexByte(other, '/')+1:]
			return len(wanted) > 2*slips && (isNear(wanted, other, slips) || isNear(wanted, place, slips))
		})
		if len(near) > 0 {
			return near
		}
	}
	return nil
}

// isNear reports whether at most so many letters differ. A file may have thousands of wrong
// names, so most of those that are not near are ruled out by their lengths.
func isNear(a, b string, slips int) bool {
	return max(len(a)-len(b), len(b)-len(a)) <= slips && distance(a, b) <= slips
}

// plainNames are Names as plain writes them.
var plainNames = sync.OnceValue(func() (all []string) {
	for _, name := range Names() {
		all = append(all, plain(name))
	}
	return all
})

// namesWhere returns the first few names that fit, by their index in Names.
func namesWhere(fits func(i int) bool) (some []string) {
	for i, name := range Names() {
		if len(some) < maxNear && fits(i) {
			some = append(some, name)
		}
	}
	return some
}

// plain is a name without what people write differently.
func plain(name string) string { return separators.Replace(strings.ToLower(name)) }

var separators = strings.NewReplacer(" ", "_", "-", "_")

// distance is how many letters must be inserted, removed or replaced to make b of a.
func distance(a, b string) int {
	row, before := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		copy(before, row)
		row[0] = i + 1
		for j := range len(b) {
			replaced := before[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(replaced, before[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
