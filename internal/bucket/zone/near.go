package zone

import (
	"bytes"
	"slices"
	"strings"
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
		if same := namesWhere(func(other string) bool { return bytes.Equal(files()[other].data, f.data) }); len(same) > 0 {
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
		near := namesWhere(func(other string) bool {
			other = plain(other)
			place := other[strings.LastIndexByte(other, '/')+1:]
			return len(wanted) > 2*slips && (distance(wanted, other) <= slips || distance(wanted, place) <= slips)
		})
		if len(near) > 0 {
			return near
		}
	}
	return nil
}

// namesWhere returns the first few names that fit.
func namesWhere(fits func(name string) bool) (some []string) {
	for _, name := range Names() {
		if len(some) < maxNear && fits(name) {
			some = append(some, name)
		}
	}
	return some
}

// plain is a name without what people write differently.
func plain(name string) string {
	return strings.NewReplacer(" ", "_", "-", "_").Replace(strings.ToLower(name))
}

// distance is how many letters must be inserted, removed or replaced to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := slices.Clone(row)
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
