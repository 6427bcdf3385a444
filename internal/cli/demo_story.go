package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/daemon"
	"github.com/ratelimitd/ratelimitd/internal/daemon/reach"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// What the callers ask for.
const (
	domain  = "api"
	subject = "user=alice"
	other   = "user=bob"
	next    = "user=carol"
)

const (
	// maxAsked is how often Alice asks at most, and maxDenied how often she is denied.
	maxAsked, maxDenied = 30, 2
	// answerWithin bounds the wait for each answer.
	answerWithin = 10 * time.Second
)

// story is what the demo shows.
type story struct {
	out   io.Writer
	files files
	// asked is the rule of Alice.
	asked *rules.Rule
}

// run has the callers ask, and says what to try next.
func (s story) run(ctx context.Context, at daemon.Addresses) error {
	at = reachable(at)
	conn, err := grpc.NewClient(at.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("%s: %w", at.GRPC, err)
	}
	defer conn.Close()
	s.printf("ratelimitd serves the limits in %s:\ngRPC on %s, HTTP on %s, admin on %s.\n\n",
		s.files.limits, orOff(at.GRPC), orOff(at.HTTP), orOff(at.Admin))
	s.printf("The rule %s of the domain %s limits each %[1]s (%[3]s:%[4]d): %[5]s.\nAlice asks until she is denied:\n\n",
		s.asked.Path(), domain, filepath.Base(s.asked.File), s.asked.Line, limitsIn(s.asked))
	client := ratelimitv1.NewRateLimitServiceClient(conn)
	denied := 0
	for n := 1; n <= maxAsked && denied < maxDenied; n++ {
		allowed, err := s.ask(ctx, client, n, subject)
		if err != nil {
			return err
		}
		if !allowed {
			denied++
		}
	}
	s.printf("\nA denied request takes nothing. Bob has a count of his own:\n\n")
	if _, err := s.ask(ctx, client, 1, other); err != nil {
		return err
	}
	s.printNext(at)
	return nil
}

func (s story) printf(format string, args ...any) {
	// The daemon serves on when its output is no longer read.
	_, _ = fmt.Fprintf(s.out, format, args...)
}

// ask asks once, and says what was answered.
func (s story) ask(ctx context.Context, client ratelimitv1.RateLimitServiceClient, n int, subject string) (allowed bool, err error) {
	request, err := assigntext.ParseTake(domain, []string{subject})
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	r, err := client.Take(ctx, request, grpc.WaitForReady(true))
	if err != nil {
		return false, err
	}
	if !r.GetAllowed() {
		s.printf("  %2d  %s  DENIED by the rule %s; try again in %s\n", n, subject, s.asked.Path(), timespan.Format(r.GetRetryAfter().AsDuration()))
		return false, nil
	}
	left := uint64(0)
	for i, l := range r.GetLimits() {
		if i == 0 || uint64(l.GetRemaining()) < left {
			left = uint64(l.GetRemaining())
		}
	}
	s.printf("  %2d  %s  allowed, %s left\n", n, subject, words.Thousands(int64(left)))
	return true, nil
}

// printNext says what to try, in commands that work as they are printed.
func (s story) printNext(at daemon.Addresses) {
	program, toGRPC, toAdmin := spelling.ShellWord(os.Args[0]), "", ""
	if own, err := dial.OwnSettings(); err != nil || !isOwn(own, at) {
		toGRPC, toAdmin = " --address "+at.GRPC, " --admin-address "+at.Admin
	}
	body := fmt.Sprintf(`{"domain": "%s", "descriptors": [{"entries": [{"key": "user", "value": "dave"}]}]}`, domain)
	s.printf("\nServing until Ctrl-C. In another terminal, ask as Carol on the command line and as Dave over HTTP:\n\n")
	s.printf("  %s take%s --domain %s --count 12 %s\n", program, toGRPC, domain, next)
	if at.HTTP != "" {
		s.printf("  curl -i http://%s/json -d '%s'\n", at.HTTP, body)
	}
	if at.Admin != "" {
		s.printf("\nSee why Alice is denied and who is denied most, give a customer a plan, and see all limits:\n\n")
		s.printf("  export %s=$(cat %s)\n", dial.TokenVariable, spelling.ShellWord(s.files.token))
		s.printf("  %s explain%s --domain %s %s\n", program, toAdmin, domain, subject)
		s.printf("  %s top%s %s\n", program, toAdmin, domain)
		s.printf("  %s assign%s --domain %s tenant=acme --plan pro\n", program, toAdmin, domain)
		s.printf("  %s take%s --domain %s tenant=acme\n", program, toGRPC, domain)
		s.printf("  curl http://%s/rlconfig\n", at.Admin)
	}
	s.printf("\nEdit the limits while it serves: they are in force within a second.\n\n")
}

// limitsIn describes the limits of a rule.
func limitsIn(r *rules.Rule) string {
	all := make([]string, len(r.Limits))
	for i, l := range r.Limits {
		all[i] = words.Limit(l)
	}
	return strings.Join(all, ", and ")
}

// isOwn reports whether commands with these settings ask the demo.
func isOwn(own settings.Settings, at daemon.Addresses) bool {
	to := reachable(daemon.Addresses{GRPC: own.GRPC.Address, Admin: own.Admin.Address})
	isPlain := own.GRPC.Socket == "" && own.GRPC.TLS.Cert == "" && own.Admin.TLS.Cert == ""
	return isPlain && to.GRPC == at.GRPC && to.Admin == at.Admin
}

// reachable returns addresses at which this machine reaches ports.
func reachable(at daemon.Addresses) daemon.Addresses {
	for _, address := range []*string{&at.GRPC, &at.HTTP, &at.Admin} {
		if port, ok := reach.OnAll(*address); ok {
			*address = net.JoinHostPort("127.0.0.1", port)
		}
	}
	return at
}

func orOff(address string) string {
	if address == "" {
		return "no port"
	}
	return address
}
