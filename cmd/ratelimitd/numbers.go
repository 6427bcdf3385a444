package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/period"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

const allowedNumbers = `[NAME=]REQUESTS[/PERIOD][,BURST], such as month=5000000/30d or 100/1s,200`

// parseNumbers reads the numbers of one limit. A limit without a name has none here;
// without a period the limit keeps its own. In the name a backslash means what it means in
// entries.
func parseNumbers(text string) (*adminv1.AssignedNumbers, error) {
	name, rest, named := cutUnescaped(text, '=')
	if !named {
		name, rest = "", text
	}
	bad := func(what string) error { return fmt.Errorf("found %q%s; allowed: %s", text, what, allowedNumbers) }
	rest, burst, hasBurst := strings.Cut(rest, ",")
	requests, span, hasPeriod := strings.Cut(rest, "/")
	n := &adminv1.AssignedNumbers{Limit: spelling.ParsePart(name)}
	var ok bool
	if n.Requests, ok = parseUint32(requests); !ok {
		return nil, bad(fmt.Sprintf(", where %q are no requests from 0 to %d", requests, int64(bucket.MaxRequests)))
	}
	if hasPeriod {
		d, err := period.Parse(span)
		if err != nil {
			return nil, bad(", where the period is " + err.Error())
		}
		n.Period = durationpb.New(d)
	}
	if hasBurst {
		if n.Burst, ok = parseUint32(burst); !ok || n.Burst == 0 {
			return nil, bad(fmt.Sprintf(", where %q is no burst from 1 to %d", burst, int64(bucket.MaxRequests)))
		}
	}
	return n, nil
}

func parseUint32(text string) (uint32, bool) {
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err == nil && text[0] != '+'
}

// parseNumbersList reads the numbers of several limits, parted by semicolons.
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

// nameEscapes escape what would end the name of a limit, or be cut from it.
var nameEscapes = strings.NewReplacer(`\`, `\\`, "=", `\=`, ";", `\;`, " ", `\ `)

// formatNumbers writes numbers as parseNumbersList reads them.
func formatNumbers(list []*adminv1.AssignedNumbers) string {
	items := make([]string, len(list))
	for i, n := range list {
		var s strings.Builder
		if n.GetLimit() != "" {
			s.WriteString(spelling.Visible(nameEscapes.Replace(n.GetLimit())) + "=")
		}
		fmt.Fprint(&s, n.GetRequests())
		if n.Period != nil {
			s.WriteString("/" + formatPeriod(n.GetPeriod().AsDuration()))
		}
		if n.GetBurst() > 0 {
			fmt.Fprintf(&s, ",%d", n.GetBurst())
		}
		items[i] = s.String()
	}
	return strings.Join(items, ";")
}

// formatPeriod writes a period of whole milliseconds as period.Parse reads it:
// in the largest unit that divides it.
func formatPeriod(d time.Duration) string {
	for _, u := range []struct {
		name   string
		length time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}} {
		if d%u.length == 0 {
			return fmt.Sprintf("%d%s", d/u.length, u.name)
		}
	}
	return fmt.Sprintf("%dms", d/time.Millisecond)
}

// cutUnescaped is strings.Cut at the first c that no backslash stands before.
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

// numbersFlag is a flag that may come several times, once for each limit.
type numbersFlag struct{ to *[]*adminv1.AssignedNumbers }

func (f numbersFlag) String() string  { return "" }
func (f numbersFlag) Type() string    { return "numbers" }
func (f numbersFlag) allowed() string { return allowedNumbers }

func (f numbersFlag) Set(text string) error {
	n, err := parseNumbers(text)
	if err == nil {
		*f.to = append(*f.to, n)
	}
	return err
}
