package ask

import (
	"cmp"
	"context"
	"strconv"
	"strings"
)

// beginning is the ID before all of a stream.
const beginning = "0-0"

// newest returns the ID of the last question, or beginning.
func (l *Line) newest(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, l.redis.Timeout())
	defer cancel()
	all, err := l.redis.XRevRangeN(ctx, l.questions(), "+", "-", 1).Result()
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		return beginning, nil
	}
	return all[0].ID, nil
}

// isBefore reports whether the ID a of a stream, which is not empty, is before b.
func isBefore(a, b string) bool {
	if a == beginning {
		return false // the stream has expired, and its IDs go on
	}
	parse := func(id string) (ms, seq uint64) {
		first, second, _ := strings.Cut(id, "-")
		ms, _ = strconv.ParseUint(first, 10, 64)
		seq, _ = strconv.ParseUint(second, 10, 64)
		return ms, seq
	}
	ams, aseq := parse(a)
	bms, bseq := parse(b)
	return cmp.Or(cmp.Compare(ams, bms), cmp.Compare(aseq, bseq)) < 0
}
