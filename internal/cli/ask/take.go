package ask

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/zone"
	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

type taking struct {
	caller
	cost  int64
	peek  bool
	count int64
	// id names the take, so that it can be settled within a time; 0: the daemon's default.
	id           string
	settleWithin time.Duration
}

// TakeCommand takes from limits, as callers do. It asks the daemon with the settings that load returns, or the one that its
// flags name.
func TakeCommand(load dial.Loader) *cobra.Command {
	t := taking{caller: newCaller(load), cost: 1, count: 1}
	cmd := &cobra.Command{
		Use:   "take --domain D KEY=VALUE[,KEY=VALUE]...",
		Short: "Take from limits, as a caller does",
		Long: `Takes from limits, as callers of a running daemon do, and prints what each limit
says. What is allowed is charged, so to look at a customer use explain, inspect
or --peek, which take nothing. Each argument is one descriptor: its entries,
separated by commas. A backslash makes the next character part of a key or
value, except in \u{1b}, which is U+001B.

With --id it reserves: settle says afterwards what was used.
Exits with 0 when all were allowed, with 3 when one was denied, and with 1 on an
error.`,
		Example: `  ratelimitd take --domain api user=alice
  ratelimitd take --domain api --peek user=alice
  ratelimitd take --domain api --count 12 user=alice,route=/search plan=free
  ratelimitd take --domain batch --cost 50 --json job=report
  ratelimitd take --domain llm --cost 4000 --id req-1 user=alice`,
		Args:              cmdline.AtLeastOne("a descriptor, such as user=alice"),
		ValidArgsFunction: dial.CompleteEntries(load),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("settle-within") && t.id == "" {
				return fmt.Errorf("flag --settle-within: found %s without --id; allowed: beside the id by which the request is settled", t.settleWithin)
			}
			t.program = cmd.Root().Name()
			return t.run(cmd.Context(), cmd.OutOrStdout(), args)
		},
	}
	t.bind(cmd, load, "each answer")
	fs := cmd.Flags()
	fs.Var(cmdline.Number(&t.cost, 1, bucket.MaxRequests), "cost", "what each request takes")
	fs.BoolVar(&t.peek, "peek", false, "take nothing, and say what a cost of 1 would get")
	fs.Var(cmdline.Number(&t.count, 1, math.MaxInt32), "count", "how often to ask")
	bindID(fs, &t.id, "name the request, so that settle can say what it used")
	fs.Var(settleWithin(&t.settleWithin), "settle-within", "how long it can be settled (default: 1h, or less where the daemon says so)")
	cmd.MarkFlagsMutuallyExclusive("cost", "peek")
	cmd.MarkFlagsMutuallyExclusive("id", "peek")
	return cmd
}

func (t *taking) run(ctx context.Context, out io.Writer, args []string) error {
	request, err := t.request(args)
	if err != nil {
		return err
	}
	args = visibleArgs(args, request)
	conn, err := t.to.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	client := ratelimitv1.NewRateLimitServiceClient(conn)
	denied, unmatched, reserved := false, false, false
	for range t.count {
		response, err := t.take(ctx, client, request)
		if err != nil {
			return t.to.Failure(conn, err)
		}
		denied = denied || !response.GetAllowed()
		unmatched = unmatched || !everyDescriptorHasALimit(len(args), response)
		reserved = reserved || t.id != "" && hasReserved(response)
		if err := t.print(out, args, response); err != nil {
			return err
		}
	}
	if reserved && !t.json {
		words := slices.Concat([]string{t.program, "settle"}, t.sameDaemon(), []string{"--domain", t.domain, "--id", t.id}, args)
		if _, err := fmt.Fprintf(out, "then: %s --cost USED\n", shellWords(words)); err != nil {
			return err
		}
	}
	if (denied || unmatched) && !t.json {
		// The answer has limits, but not the rules that they come from.
		if err := t.writeWhy(out, "explain", append([]string{t.domain}, args...)); err != nil {
			return err
		}
	}
	if denied {
		return cmdline.ExitCode(cmdline.ExitDenied)
	}
	return nil
}

// request returns the request to send.
func (t *taking) request(args []string) (*ratelimitv1.TakeRequest, error) {
	request, err := assigntext.ParseTake(t.domain, args)
	if err != nil {
		return nil, err
	}
	cost := uint64(t.cost)
	if t.peek {
		cost = 0
	}
	for _, d := range request.Descriptors {
		d.Cost = &cost
	}
	request.Id = t.id
	if t.settleWithin > 0 {
		request.SettleWithin = durationpb.New(t.settleWithin)
	}
	return request, nil
}

// take asks once, within the user's timeout.
func (t *taking) take(ctx context.Context, client ratelimitv1.RateLimitServiceClient, request *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	return client.Take(ctx, request)
}

func (t *taking) print(out io.Writer, args []string, r *ratelimitv1.TakeResponse) error {
	if t.json {
		return cmdline.WriteMessage(out, r)
	}
	return printDecision(out, args, r)
}

// visibleArgs returns the arguments of a request as they are, or spelled differently if
// people would not see all of one.
func visibleArgs(args []string, request *ratelimitv1.TakeRequest) []string {
	shown := slices.Clone(args)
	for i, arg := range args {
		if spelling.Visible(arg) != arg {
			shown[i] = assigntext.FormatEntries(request.GetDescriptors()[i].GetEntries())
		}
	}
	return shown
}

func everyDescriptorHasALimit(descriptors int, r *ratelimitv1.TakeResponse) bool {
	has := make([]bool, descriptors)
	for _, l := range r.GetLimits() {
		if i := l.GetDescriptorIndex(); int(i) < descriptors {
			has[i] = true
		}
	}
	return !slices.Contains(has, false)
}

// shellWords returns words as a shell reads them.
func shellWords(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = spelling.ShellWord(w)
	}
	return strings.Join(quoted, " ")
}

// printDecision writes a line for each limit, and one for the request if it is
// denied or has several limits.
func printDecision(out io.Writer, args []string, r *ratelimitv1.TakeResponse) error {
	width := 0
	for _, arg := range args {
		width = max(width, len(arg))
	}
	var text strings.Builder
	lines := 0
	for i, arg := range args {
		before := lines
		for _, l := range r.GetLimits() {
			if l.GetDescriptorIndex() == uint32(i) {
				fmt.Fprintf(&text, "%-7s  %-*s  %s\n", verdictOf(l), width, arg, describeTaken(l))
				lines++
			}
		}
		if lines == before {
			fmt.Fprintf(&text, "allowed  %-*s  no limit applies\n", width, arg)
			lines++
		}
	}
	switch {
	case !r.GetAllowed():
		fmt.Fprintf(&text, "DENIED   the request as a whole%s; %s\n", denier(args, r), whenToRetry(r))
	case lines > 1:
		text.WriteString("ALLOWED  the request as a whole\n")
	}
	if r.GetDegraded() {
		text.WriteString("DEGRADED decided without the store, at least in part\n")
	}
	_, err := io.WriteString(out, spelling.VisibleLines(text.String()))
	return err
}

func verdictOf(l *ratelimitv1.Limit) string {
	switch {
	case l.GetAllowed():
		return "allowed"
	case l.GetShadow():
		return "shadow"
	}
	return "denied"
}

// denier says which limit denied, where there are several.
func denier(args []string, r *ratelimitv1.TakeResponse) string {
	i := r.GetDeniedBy()
	if r.DeniedBy == nil || len(r.GetLimits()) < 2 || int(i) >= len(r.GetLimits()) {
		return ""
	}
	l := r.GetLimits()[i]
	if int(l.GetDescriptorIndex()) >= len(args) {
		return ""
	}
	by := args[l.GetDescriptorIndex()]
	if l.GetName() != "" {
		by = l.GetName() + " of " + by
	}
	return ", by " + by
}

// describeTaken describes a limit and what is left of it.
func describeTaken(l *ratelimitv1.Limit) string {
	var s strings.Builder
	if l.GetName() != "" {
		s.WriteString(l.GetName() + ": ")
	}
	if l.GetRequests() == 0 && l.GetRetryAfter() != nil {
		// A block that ends. Nothing is left of it, and it does not refill.
		return s.String() + "denies all; " + whenToRetry(l)
	}
	fmt.Fprintf(&s, "%s left; %s", words.Thousands(int64(l.GetRemaining())), describeNumbers(l))
	if !l.GetAllowed() {
		s.WriteString("; " + whenToRetry(l))
		if latest := l.GetFreeAtLatest(); latest != nil {
			s.WriteString(", in " + timespan.Format(latest.AsDuration()) + " at the latest if none is renewed")
		}
	}
	if paused := l.GetPausedFor(); paused != nil {
		s.WriteString("; paused for " + timespan.Format(paused.AsDuration()))
	}
	if held := l.GetHeldFor(); held != nil {
		s.WriteString("; held for " + timespan.Format(held.AsDuration()))
	}
	if reset := l.GetResetAfter().AsDuration(); reset > 0 {
		s.WriteString("; full again in " + timespan.Format(reset))
	}
	return s.String()
}

// whenToRetry says when a request that was denied, as a whole or by one limit, would pass.
func whenToRetry(denied interface {
	GetRetryAfter() *durationpb.Duration
	GetRetryUnknown() bool
}) string {
	switch after := denied.GetRetryAfter(); {
	case denied.GetRetryUnknown():
		return "try again once a slot is released"
	case after == nil:
		return "it can never pass"
	default:
		return "try again in " + timespan.Format(after.AsDuration())
	}
}

// describeNumbers says how much a limit allows, in the words of check.
func describeNumbers(l *ratelimitv1.Limit) string {
	spec := bucket.Spec{
		Algorithm: bucket.Algorithm(l.GetAlgorithm()),
		Requests:  int64(l.GetRequests()),
		Period:    l.GetPeriod().AsDuration(),
	}
	if spec.Algorithm.IsBucket() {
		spec.Burst = int64(l.GetCapacity())
	}
	if c := l.GetCalendar(); c != nil {
		spec.Calendar, spec.Period = calendarOf(c), 0
	}
	limit, err := bucket.NewLimit(spec)
	if err != nil { // of an algorithm or with numbers unknown to this program
		return fmt.Sprintf("%d requests in %s", l.GetRequests(), timespan.Format(l.GetPeriod().AsDuration()))
	}
	text := words.Limit(limit)
	if l.ResetAt != nil && spec.Calendar.Zone != nil {
		text += ", next reset " + words.Moment(l.GetResetAt().AsTime().In(spec.Calendar.Zone), time.Now())
	}
	return text
}

// calendarOf returns the calendar of an answer. What this program does not know of it is
// not set.
func calendarOf(m *ratelimitv1.Calendar) bucket.Calendar {
	c := bucket.Calendar{Unit: bucket.CalendarUnit(m.GetUnit())}
	c.Starts, _ = bucket.ParseStarts(m.GetStarts())
	if z, err := zone.Load(m.GetTimeZone()); err == nil {
		c.Zone = z
	}
	return c
}
