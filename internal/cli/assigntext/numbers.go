package assigntext

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/period"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// AllowedNumbers is how the numbers of a limit are written.
const AllowedNumbers = `[NAME=]REQUESTS[/PERIOD][,BURST][,BLOCK_FOR], such as month=5000000/30d, 100/1s,200 or login=5,10m`

// parseNumbers reads the numbers of one limit. A limit without a name has none here;
// without a period the limit keeps its own. A backslash in the name means the same as in
// entries.
func parseNumbers(text string) (*adminv1.AssignedNumbers, error) {
	name, rest, named := cutUnescaped(text, '=')
	if !named {
		name, rest = "", text
	}
	bad := func(what string) error { return fmt.Errorf("found %q%s; allowed: %s", text, what, AllowedNumbers) }
	rest, more, hasMore := strings.Cut(rest, ",")
	requests, per, hasPeriod := strings.Cut(rest, "/")
	n := &adminv1.AssignedNumbers{Limit: spelling.ParsePart(name)}
	var ok bool
	if n.Requests, ok = parseNumber(requests); !ok {
		return nil, bad(fmt.Sprintf(", where %q are no requests from 0 to %d", requests, int64(bucket.MaxRequests)))
	}
	if hasPeriod {
		d, err := period.Parse(per)
		if err != nil {
			return nil, bad(", where the period is " + err.Error())
		}
		n.Period = durationpb.New(d)
	}
	burst, block, hasBlock := strings.Cut(more, ",")
	if d, err := period.Parse(more); err == nil { // a time has a unit
		n.BlockFor, hasMore = durationpb.New(d), false
	}
	if hasMore {
		if n.Burst, ok = parseNumber(burst); !ok || n.Burst == 0 {
			return nil, bad(fmt.Sprintf(", where %q is no burst from 1 to %d", burst, int64(bucket.MaxRequests)))
		}
	}
	if hasBlock {
		d, err := period.Parse(block)
		if err != nil {
			return nil, bad(", where block_for is " + err.Error())
		}
		n.BlockFor = durationpb.New(d)
	}
	return n, nil
}

func parseNumber(text string) (uint64, bool) {
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil && n <= bucket.MaxRequests
}

// parseNumbersList reads the numbers of several limits, separated by semicolons.
func parseNumbersList(text string) ([]*adminv1.AssignedNumbers, error) {
	var list []*adminv1.AssignedNumbers
	for more := strings.Trim(text, " ") != ""; more; {
		var item string
		item, text, more = cutUnescaped(text, ';')
		n, err := parseNumbers(strings.Trim(item, " "))
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}

// nameEscapes escape what would end the name of a limit or be cut from it.
var nameEscapes = strings.NewReplacer(`\`, `\\`, "=", `\=`, ";", `\;`, " ", `\ `)

// formatNumbers formats numbers as parseNumbersList reads them.
func formatNumbers(list []*adminv1.AssignedNumbers) string {
	items := make([]string, len(list))
	for i, n := range list {
		var s strings.Builder
		if n.GetLimit() != "" {
			s.WriteString(spelling.Visible(nameEscapes.Replace(n.GetLimit())) + "=")
		}
		fmt.Fprint(&s, n.GetRequests())
		if n.Period != nil {
			s.WriteString("/" + period.Format(n.GetPeriod().AsDuration()))
		}
		if n.GetBurst() > 0 {
			fmt.Fprintf(&s, ",%d", n.GetBurst())
		}
		if n.BlockFor != nil {
			s.WriteString("," + period.Format(n.GetBlockFor().AsDuration()))
		}
		items[i] = s.String()
	}
	return strings.Join(items, ";")
}

// cutUnescaped is strings.Cut at the first c without a backslash before it.
func cutUnescaped(text string, c byte) (before, after string, found bool) {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case c:
			return text[:i], text[i+1:], true
		}
	}
	return text, "", false
}

// NumbersValue is the value of a flag that may be repeated, once for each limit.
func NumbersValue(to *[]*adminv1.AssignedNumbers) cmdline.Value {
	return cmdline.Value{Kind: "numbers", May: AllowedNumbers, Read: func(text string) error {
		n, err := parseNumbers(text)
		if err != nil {
			return cmdline.ValueError{Err: err}
		}
		*to = append(*to, n)
		return nil
	}}
}

// LimitValue is the value of a flag that names a limit and may be repeated.
func LimitValue(to *[]string) cmdline.Value {
	return cmdline.Value{Kind: "name", May: "the name of a limit, such as month", Read: func(text string) error {
		if _, _, hasNumbers := cutUnescaped(text, '='); hasNumbers {
			return cmdline.ErrNotAllowed
		}
		*to = append(*to, spelling.ParsePart(text))
		return nil
	}}
}

// LimitNames lists names of limits; a limit may have none.
func LimitNames(names []string) string {
	shown := make([]string, len(names))
	for i, name := range names {
		shown[i] = cmp.Or(name, "the limit without a name")
	}
	return strings.Join(shown, ", ")
}
