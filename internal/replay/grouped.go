package replay

import "github.com/ratelimitd/ratelimitd/internal/config/rules/words"

// grouped formats a number for people, with thousands separators, as in 12,300.
func grouped[N int | int64 | uint64](n N) string {
	return words.Thousands(int64(n))
}

// plural returns "1 request" or "12,300 requests".
func plural(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return grouped(n) + " " + what + "s"
}
