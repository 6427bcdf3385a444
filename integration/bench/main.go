// Command bench loads the whole daemon and prints what a decision costs: next
// to bare gRPC servers, which answer without deciding, in the same run.
//
// It starts everything itself: the daemon, which it builds; redis-servers from
// PATH; and the bare servers, which are processes of its own. A row of its
// table is a load; the servers of a row take turns in short slices, so that whatever else
// happens on the machine affects all alike, and each number is the median of its slices.
// All but the compared are restarted a few times, because even two processes of one
// program differ. docs/measurements.md says how to read it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/gctuning"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A reader that goes away must not keep this program from tidying up.
	signal.Ignore(syscall.SIGPIPE)
	err := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// options are the command line's.
type options struct {
	full, overload, markdown, printLimits bool
	run                                   *regexp.Regexp
	starts                                int
	plan                                  plan
	profiles                              string
	compared                              comparisons
	paired                                builds
}

// command runs the program with its arguments.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 1 && hidden[args[0]] != nil {
		return hidden[args[0]](stdout)
	}
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if o.printLimits {
		_, err := io.WriteString(stdout, limitsFile("", ""))
		return err
	}
	return bench(ctx, o, stdout, stderr)
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	o.plan = plan{connect: 300 * time.Millisecond}
	name := ""
	fs.BoolVar(&o.full, "full", false, "also every store with all kinds of keys, descriptors and callers, and the overload")
	fs.BoolVar(&o.overload, "overload", false, "also send more than the daemon can answer")
	fs.BoolVar(&o.markdown, "markdown", false, "print Markdown")
	fs.BoolVar(&o.printLimits, "print-limits", false, "print the limits file that a compared server must have loaded, and end")
	fs.StringVar(&name, "run", "", "only the rows whose names match this regular expression")
	fs.IntVar(&o.starts, "starts", 3, "how often all servers but the compared are started anew")
	fs.IntVar(&o.plan.rounds, "rounds", 2, "how often each server of a row has its turn after each start")
	fs.DurationVar(&o.plan.slice, "slice", 600*time.Millisecond, "how long a turn is measured")
	fs.Float64Var(&o.plan.rate, "rate", 0, "how many requests arrive a second, answered or not; 0: each caller sends when it has an answer")
	fs.DurationVar(&o.plan.warm, "warm", 150*time.Millisecond, "how long a turn runs before it is measured")
	fs.StringVar(&o.profiles, "profiles", "", "a folder for a CPU profile of the daemon on each row")
	fs.Var(&o.compared, "compare", "another server of the same protocol, NAME=HOST:PORT[,PID]; may be repeated")
	fs.Var(&o.paired, "pair", "measure each row on the daemon and on another build of it, NAME=PATH, in turns, and print what the daemon is to that; may be repeated")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("found the argument %q; allowed: flags only", fs.Arg(0))
	}
	if o.starts < 1 || o.plan.rounds < 1 || o.plan.slice <= 0 || o.plan.warm < 0 || o.plan.rate < 0 {
		return o, fmt.Errorf("found -starts %d -rounds %d -slice %v -warm %v -rate %v; allowed: at least 1, at least 1, more than 0s, at least 0s, at least 0", o.starts, o.plan.rounds, o.plan.slice, o.plan.warm, o.plan.rate)
	}
	if len(o.paired) > 0 && (len(o.compared) > 0 || o.overload || o.profiles != "") {
		return o, errors.New("found -pair with -compare, -overload or -profiles; allowed: one of them")
	}
	if o.run, err = regexp.Compile(name); err != nil {
		return o, fmt.Errorf("-run: %w", err)
	}
	return o, nil
}

// bench measures and prints. Its error says that something does not work or answers
// wrongly, never that it is slow.
func bench(ctx context.Context, o options, stdout, stderr io.Writer) error {
	// The generator shares the processors with what it measures.
	gctuning.Start()
	groups := usualRows()
	if o.full {
		groups = allRows()
	}
	groups = selectRows(groups, o.run)
	overload := o.full || o.overload
	if len(groups) == 0 && (!overload || len(o.paired) > 0) {
		return fmt.Errorf("-run: found %q, which matches no row", o.run)
	}
	progress := func(format string, args ...any) { fmt.Fprintf(stderr, "# "+format+"\n", args...) }
	if len(o.paired) > 0 {
		return pair(ctx, o, groups, stdout, progress)
	}
	r := report{compared: o.compared, markdown: o.markdown}
	var noise noise
	var bareStates []float64
	if len(groups) == 0 {
		o.starts = 1 // of the overload
	}
	for start := range o.starts {
		progress("start %d of %d", start+1, o.starts)
		l, err := openLab(ctx, o.compared, progress)
		if err != nil {
			return err
		}
		l.profiles = o.profiles
		measured := noise.listen(l)
		err = r.measure(ctx, l, groups, o.plan)
		if err == nil && overload && start == o.starts-1 {
			progress("overload")
			r.overload, err = l.overload(ctx, o.plan)
		}
		measured()
		if l.bareStates > 0 {
			bareStates = append(bareStates, l.bareStates.Seconds())
		}
		l.close()
		if err != nil {
			return err
		}
	}
	fmt.Fprintf(stdout, "%s\n%d slices of %v, of which each number is the median; %v\n", machine(ctx), o.starts*o.plan.rounds, o.plan.slice, noise)
	if len(bareStates) > 0 {
		fmt.Fprintf(stdout, "to read a state (MGET) and to write it (SET with PX), 64 at a time, costs this Redis %.2f us without a script\n", median(bareStates)*1e6)
	}
	r.print(stdout)
	for _, p := range r.problems() {
		if p.wrong {
			return fmt.Errorf("wrong answers: %s", p.text)
		}
	}
	return nil
}
