package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
)

type query struct {
	to      target
	domain  string
	cost    int64
	count   int64
	json    bool
	timeout time.Duration
}

// queryCommand asks the daemon with the settings that load returns, or the one of
// its flags.
func queryCommand(load func() (settings.Settings, error)) *cobra.Command {
	q := query{to: target{settings: load}, cost: 1, count: 1, timeout: 2 * time.Second}
	cmd := &cobra.Command{
		Use:   "query --domain D KEY=VALUE[,KEY=VALUE]...",
		Short: "Ask a running daemon for decisions",
		Long: `Asks a running daemon over gRPC, as Envoy would, and prints its decisions. Each
argument is one descriptor: its entries, separated by commas. A backslash makes
the next character part of a key or value.

These are real requests: what is allowed is charged. Exits with 0 when all were
allowed, with 3 when one was denied, and with 1 on an error.`,
		Example: `  ratelimitd query --domain api user=alice
  ratelimitd query --domain api --count 12 user=alice,route=/search plan=free
  ratelimitd query --domain batch --cost 50 --json job=report`,
		Args: atLeastOne("a descriptor, such as user=alice"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return q.run(cmd.Context(), cmd.OutOrStdout(), args)
		},
	}
	q.to.bind(cmd.Flags())
	fs := cmd.Flags()
	fs.StringVar(&q.domain, "domain", "", "domain of the limits (required)")
	fs.Var(numberFlag{&q.cost, 1, math.MaxUint32}, "cost", "what each request takes")
	fs.Var(numberFlag{&q.count, 1, math.MaxInt32}, "count", "how often to ask")
	fs.BoolVar(&q.json, "json", false, "print each response as a line of protobuf JSON")
	fs.Var(waitFlag{&q.timeout}, "timeout", "how long to wait for each answer")
	if err := cmd.MarkFlagRequired("domain"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

func (q *query) run(ctx context.Context, out io.Writer, args []string) error {
	request := &rlsv3.RateLimitRequest{Domain: q.domain, HitsAddend: uint32(q.cost)}
	for _, arg := range args {
		d, err := parseDescriptor(arg)
		if err != nil {
			return err
		}
		request.Descriptors = append(request.Descriptors, d)
	}
	conn, err := q.to.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	client := rlsv3.NewRateLimitServiceClient(conn)
	denied := false
	for range q.count {
		ctx, cancel := context.WithTimeout(ctx, q.timeout)
		response, err := client.ShouldRateLimit(ctx, request)
		cancel()
		if err != nil {
			return failure(conn, err)
		}
		denied = denied || response.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT
		if err := q.print(out, args, response); err != nil {
			return err
		}
	}
	if denied {
		return exitCode(exitDenied)
	}
	return nil
}

// parseDescriptor reads KEY=VALUE[,KEY=VALUE].
func parseDescriptor(arg string) (*ratelimitv3.RateLimitDescriptor, error) {
	d := &ratelimitv3.RateLimitDescriptor{}
	var key, text strings.Builder
	hasKey := false
	end := func() error {
		if !hasKey {
			return fmt.Errorf("%q: found %q; allowed: KEY=VALUE[,KEY=VALUE] and so on", arg, text.String())
		}
		d.Entries = append(d.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: key.String(), Value: text.String()})
		key.Reset()
		text.Reset()
		hasKey = false
		return nil
	}
	for i := 0; i < len(arg); i++ {
		switch c := arg[i]; {
		case c == '\\' && i+1 < len(arg):
			i++
			text.WriteByte(arg[i])
		case c == '=' && !hasKey:
			hasKey = true
			key.WriteString(text.String())
			text.Reset()
		case c == ',':
			if err := end(); err != nil {
				return nil, err
			}
		default:
			text.WriteByte(c)
		}
	}
	if err := end(); err != nil {
		return nil, err
	}
	return d, nil
}

func (q *query) print(out io.Writer, args []string, r *rlsv3.RateLimitResponse) error {
	if q.json {
		line, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(r)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%s\n", line)
		return err
	}
	width := 0
	for _, arg := range args {
		width = max(width, len(arg))
	}
	for i, s := range r.GetStatuses() {
		if _, err := fmt.Fprintf(out, "%-7s  %-*s  %s\n", verdict(s), width, args[i], explain(s)); err != nil {
			return err
		}
	}
	if len(args) > 1 || r.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
		if _, err := fmt.Fprintf(out, "%-7s  %s\n", overall(r), advice(r)); err != nil {
			return err
		}
	}
	if r.GetDynamicMetadata().GetFields()["degraded"].GetBoolValue() {
		_, err := fmt.Fprintln(out, "DEGRADED decided without the store, at least in part")
		return err
	}
	return nil
}

func verdict(s *rlsv3.RateLimitResponse_DescriptorStatus) string {
	if s.GetCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
		return "denied"
	}
	return "allowed"
}

func overall(r *rlsv3.RateLimitResponse) string {
	if r.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
		return "DENIED"
	}
	return "ALLOWED"
}

func advice(r *rlsv3.RateLimitResponse) string {
	if r.GetOverallCode() != rlsv3.RateLimitResponse_OVER_LIMIT {
		return "the request as a whole"
	}
	for _, h := range r.GetResponseHeadersToAdd() {
		if h.GetKey() == "retry-after" {
			return "the request as a whole; try again in " + h.GetValue() + " s"
		}
	}
	return "the request as a whole; it can never pass"
}

// explain says in words what a status holds.
func explain(s *rlsv3.RateLimitResponse_DescriptorStatus) string {
	limit := s.GetCurrentLimit()
	switch {
	case limit == nil && s.GetLimitRemaining() == math.MaxUint32:
		return "unlimited"
	case limit == nil:
		return "no limit applies"
	}
	var b strings.Builder
	if limit.GetName() != "" {
		b.WriteString(limit.GetName() + ": ")
	}
	fmt.Fprintf(&b, "%d left, limit %d", s.GetLimitRemaining(), limit.GetRequestsPerUnit())
	if unit := limit.GetUnit(); unit != rlsv3.RateLimitResponse_RateLimit_UNKNOWN {
		name := strings.ToLower(unit.String())
		if n := limit.GetUnitMultiplier().GetValue(); n > 1 {
			name = fmt.Sprintf("%d %ss", n, name)
		}
		fmt.Fprintf(&b, " per %s", name)
	}
	if reset := s.GetDurationUntilReset().AsDuration(); reset > 0 {
		fmt.Fprintf(&b, ", full again in %s", shortly(reset))
	}
	return b.String()
}

// shortly leaves out the trailing zeros of a duration: 1m instead of 1m0s.
func shortly(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
