package yamlfile

// Nearest returns the name that word was most likely meant to be, or "" if none
// is close.
func Nearest(word string, names []string) string {
	const longest = 64
	if len(word) > longest {
		return ""
	}
	best, fewest := "", 1+max(1, len(word)/3)
	for _, name := range names {
		if n := edits(word, name); n < fewest {
			best, fewest = name, n
		}
	}
	return best
}

// edits counts the bytes to insert, delete, replace or swap with their
// neighbour to turn a into b.
func edits(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			differ := 1
			if a[i-1] == b[j-1] {
				differ = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+differ)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
